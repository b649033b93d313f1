"""Request handling: API keys, limits, submitting to the engine, waiting and cancelling."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request

from heedful.basics.errors import UserError
from heedful.inference import Translation
from heedful.serving.engine import Engine, QueueFullError
from heedful.serving.errors import RefusedError, log
from heedful.serving.jobs import EngineFailedError, TooLongError
from heedful.serving.keys import Keys, key_outside_body
from heedful.serving.limits import Limits
from heedful.serving.metrics import Metrics
from heedful.serving.request_parsing import check_lists, check_unicode, read_fields
from heedful.serving.served import Served, ServedModels
from heedful.tasks.endpoints import Search, Work

T = TypeVar("T")


class RequestHandler:
    """The functions that all endpoints share.

    Args:
        models: the served models.
        engine: runs the models.
        limits: the limits of a request.
        metrics: counts characters.
        keys: API keys that are accepted; no key is required if None.
        log_texts: whether texts are logged.
        split_sentences: whether lines are split into sentences, unless the request overrides it.
        shared_files: the folder of translated files, if several processes serve the same port.
    """

    def __init__(
        self,
        models: ServedModels,
        engine: Engine,
        limits: Limits,
        metrics: Metrics,
        keys: Keys | None = None,
        log_texts: bool = False,
        split_sentences: bool = True,
        shared_files: Path | None = None,
    ) -> None:
        self.shared_files = shared_files
        self.split_sentences = split_sentences
        self.models, self.engine, self.limits = models, engine, limits
        self.metrics, self.keys, self.log_texts = metrics, keys, log_texts

    async def fields(
        self, request: Request, *, strings: bool = True, files: int = 0
    ) -> dict[str, Any]:
        """The fields of a request, after its key has been checked.

        A key in the headers is checked before the body is read.

        Args:
            request: the client's request.
            strings: whether lists must contain texts.
            files: maximum number of files in a form.

        Raises:
            RefusedError: 400, the fields cannot be read, or a list has too many values; 403, the
                key is missing or wrong.
        """
        key = key_outside_body(request.scope)
        if key is not None:
            self._check_key(key)
        fields = await read_fields(request, files)
        key_in_body = fields.pop("api_key", None)
        if key is None:
            self._check_key(key_in_body)
        return check_lists(fields, self.limits.texts, strings)

    @property
    def needs_key(self) -> bool:
        """Whether clients need an API key."""
        return self.keys is not None

    def _check_key(self, key: object) -> None:
        if self.keys is not None and not self.keys.is_valid(key):
            raise RefusedError(403, "a valid API key is required: api_key or a bearer token")

    def check_texts(self, texts: Sequence[str]) -> None:
        """Check the number, the length and the encoding of texts, and count their characters.

        Raises:
            RefusedError: 400, too many texts or characters, or a text is not valid Unicode.
        """
        if len(texts) > self.limits.texts:
            most = self.limits.texts
            raise RefusedError(400, f"{len(texts):,} texts; the maximum per request is {most:,}")
        size = sum(map(len, texts))
        if size > self.limits.characters:
            most = self.limits.characters
            raise RefusedError(400, f"{size:,} characters; the maximum per request is {most:,}")
        check_unicode(texts)
        self.metrics.count_characters(size)
        if self.log_texts:
            for text in texts:
                log.info("text: %r", text)

    def submit(self, request: Request, model: Served, work: Work) -> "Future[Any]":
        """Submit the work of a request to the engine.

        Raises:
            RefusedError: 400, the request is too much work; 429, the queue is full.
        """
        if work.search is not None:
            return self.search(model, work.search)
        if work.call is None:
            raise TypeError("work is a call or a search")
        return self.run(request, work.call)

    def search(self, model: Served, search: Search) -> "Future[list[Translation]]":
        """Submit texts to the engine, which batches them with those of other requests.

        Raises:
            RefusedError: 400, the request is too much work; 429, the queue is full.
        """
        self._check_work(model, search)
        split = self.split_sentences if search.sentences is None else search.sentences
        predictor = model.predictor
        if search.known is not None:
            predictor = predictor.with_known_spans(search.known)
        with _refuse_if_full():
            return self.engine.translate(
                predictor,
                search.texts,
                options=search.options,
                alignments=search.alignments,
                on_part=search.on_part,
                language=model.language if split else None,
            )

    def _check_work(self, model: Served, search: Search) -> None:
        """Limit the work of a request to that of a request with the maximum characters, the model's
        own search options and alignments.

        Work is proportional to the number of hypotheses; alignments count as one hypothesis.
        """
        options, alignments = search.options, search.alignments
        usual, work = model.predictor.options.width + 1, options.width + alignments
        most = self.limits.characters * usual // work
        size = sum(map(len, search.texts))
        if size > most and work > usual:
            links = " and alignments" if alignments else ""
            raise RefusedError(
                400,
                f"{size:,} characters; the maximum with a beam of {options.width}{links} is "
                f"{most:,}",
            )

    async def search_all(
        self, request: Request, searches: Sequence[tuple[Served, Search]]
    ) -> list[list[Translation]]:
        """The results of several searches that together are one request's work.

        Raises:
            RefusedError: as `search` and `wait`.
            ClientDisconnect: the client has disconnected.
        """
        futures: list[Future[list[Translation]]] = []
        try:
            for model, search in searches:
                futures.append(self.search(model, search))
            return await self.wait_all(request, futures)
        finally:
            for future in futures:
                future.cancel()

    def run(self, request: Request, job: Callable[[], T]) -> "Future[T]":
        """Submit other model work; cancelling its future cancels the work.

        Raises:
            RefusedError: 429, the queue is full.
        """
        client = request.client.host if request.client else ""
        with _refuse_if_full():
            return self.engine.run(job, client)

    async def wait(self, request: Request, future: "Future[T]") -> T:
        """Wait for a result; the work is cancelled if the client disconnects.

        Raises:
            RefusedError: 400, the model refuses the input; 503, the engine failed; 504, the time
                limit is reached.
            ClientDisconnect: the client has disconnected.
        """
        [answer] = await self.wait_all(request, [future])
        return answer

    async def wait_all(self, request: Request, futures: Sequence["Future[T]"]) -> list[T]:
        """Like `wait`, for several futures of one request."""
        answers = [asyncio.wrap_future(future) for future in futures]
        disconnected = asyncio.create_task(_disconnected(request))
        waiting: set[asyncio.Future[Any]] = set(answers)
        loop = asyncio.get_running_loop()
        until = loop.time() + self.limits.timeout
        try:
            while waiting:
                done, _ = await asyncio.wait(
                    {disconnected, *waiting},
                    timeout=max(0.0, until - loop.time()),
                    return_when=asyncio.FIRST_COMPLETED,
                )
                if not done:
                    raise self.timed_out()
                if done == {disconnected}:
                    raise ClientDisconnect
                waiting -= done
            if any(answer.cancelled() for answer in answers):
                raise RefusedError(503, "the server is stopping", retry_after=5)
            return [answer.result() for answer in answers]
        except (UserError, EngineFailedError, TooLongError) as error:
            raise http_error(error) from None
        finally:
            disconnected.cancel()
            for future in futures:  # at once: an answer's own cancellation waits for the event loop
                future.cancel()

    def timed_out(self) -> RefusedError:
        """The error of a request that reached the time limit."""
        return RefusedError(504, f"not finished within {self.limits.timeout:g} seconds")


def http_error(error: UserError | EngineFailedError | TooLongError) -> RefusedError:
    """The error of a request whose work failed in the engine."""
    if isinstance(error, UserError):
        return RefusedError(400, str(error))
    if isinstance(error, TooLongError):
        return RefusedError(504, str(error))
    return RefusedError(503, "the engine failed and was restarted; try again", retry_after=1)


@contextmanager
def _refuse_if_full() -> Iterator[None]:
    """Turn a full queue into a response with status 429."""
    try:
        yield
    except QueueFullError as error:
        message = "too many requests; try again later"
        raise RefusedError(429, message, error.retry_after) from None


async def _disconnected(request: Request) -> None:
    """Wait until the client disconnects; the body has been read before."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
