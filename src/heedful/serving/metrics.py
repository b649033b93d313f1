"""Prometheus metrics, in a separate registry, so that several servers in a process do not mix."""

from collections.abc import Callable

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
)

_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_ITEMS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """The metrics of a server; they contain no text."""

    content_type = CONTENT_TYPE_LATEST

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self._requests = Counter(
            "heedful_requests", "Requests answered", ["path", "status"], registry=self._registry
        )
        self._seconds = Histogram(
            "heedful_request_seconds",
            "Seconds from the first byte of a request to the last byte of its response",
            ["path"],
            registry=self._registry,
            buckets=_SECONDS,
        )
        self._characters = Counter(
            "heedful_characters", "Characters of texts in requests", registry=self._registry
        )
        self._items = Histogram(
            "heedful_slice_items",
            "Items (lines, or parts of long lines) in a batch",
            registry=self._registry,
            buckets=_ITEMS,
        )
        self._busy = Counter(
            "heedful_model_seconds", "Seconds of model work", registry=self._registry
        )
        self._tokens = Counter(
            "heedful_source_tokens", "Source tokens times beam", registry=self._registry
        )

    def add_waiting_gauge(self, waiting: Callable[[], int]) -> None:
        """Add a gauge for the number of waiting and running requests."""
        gauge = Gauge(
            "heedful_waiting_requests",
            "Waiting and running requests",
            registry=self._registry,
        )
        gauge.set_function(waiting)

    def count_response(self, path: str, status: int, seconds: float) -> None:
        """Count a response; ``path`` is the path of a route, never that of a client's request."""
        self._requests.labels(path, str(status)).inc()
        self._seconds.labels(path).observe(seconds)

    def count_characters(self, count: int) -> None:
        """Count characters of texts in requests."""
        self._characters.inc(count)

    def observe_slice(self, items: int, tokens: int, seconds: float) -> None:
        """Count a slice of the engine's work."""
        if items:
            self._items.observe(items)
        self._tokens.inc(tokens)
        self._busy.inc(seconds)

    def text(self) -> bytes:
        """All metrics in Prometheus' text format."""
        return generate_latest(self._registry)
