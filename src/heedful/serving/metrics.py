"""Prometheus metrics, in a separate registry, so that several servers in a process do not mix.

Several workers of one server write their metrics to files of a shared folder (the multi-process
mode of prometheus_client). Each of them returns the sums over all workers.
"""

from collections import defaultdict
from collections.abc import Iterator

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from heedful.serving.shared import Shared

_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_ITEMS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


_LEAST = {"process_start_time_seconds", "process_max_fds"}
"""Metrics of processes of which the least counts; of others, the sum."""


class Metrics:
    """The metrics of a server; they contain no text.

    Args:
        shared: the folder that this process shares with the other workers of its server.
    """

    content_type = CONTENT_TYPE_LATEST

    def __init__(self, shared: Shared | None = None) -> None:
        self._shared = shared
        self._registry = CollectorRegistry()
        if shared is None:
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

        self._waiting = Gauge(
            "heedful_waiting_requests",
            "Waiting and running requests",
            registry=self._registry,
            multiprocess_mode="livesum",
        )
        self._waiting.set(0)

    def set_waiting(self, count: int) -> None:
        """Set the number of waiting and running requests."""
        self._waiting.set(count)

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
        if self._shared is None:
            return generate_latest(self._registry)
        registry = CollectorRegistry()
        registry.register(_Processes(self._shared.processes()))
        with self._shared.locked():  # the supervisor merges the files of workers that have ended
            MultiProcessCollector(registry, str(self._shared.metrics))  # type: ignore[no-untyped-call]
            return generate_latest(registry)


class _Processes(Collector):
    """The number of workers, and the metrics of their processes, added up."""

    def __init__(self, processes: list[int]) -> None:
        self._processes = processes

    def collect(self) -> Iterator[Metric]:
        """The metrics."""
        yield GaugeMetricFamily("heedful_workers", "Worker processes", len(self._processes))
        found: dict[str, list[Metric]] = defaultdict(list)
        for number in self._processes:
            # Without a registry, it only reads.
            for one in ProcessCollector(pid=lambda: number, registry=None).collect():  # noqa: B023 - read at once
                found[one.name].append(one)
        for name, metrics in found.items():
            first = metrics[0]
            total = Metric(name, first.documentation, first.type)
            for number, sample in enumerate(first.samples):
                values = [one.samples[number].value for one in metrics]
                merged = min(values) if name in _LEAST else sum(values)
                total.add_sample(sample.name, sample.labels, merged)
            yield total
