"""The HTTP endpoints of a task: requests, responses and the work to do.

The server checks a request, chooses the model, counts texts against its limits, queues the work and
sends the result. A task declares the rest, without code for HTTP.
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict, StrictStr, ValidationError

from heedful.basics.errors import UserError
from heedful.basics.settings import explain

if TYPE_CHECKING:
    from heedful.data.protected.known import KnownSpans
    from heedful.decoding import SearchOptions
    from heedful.inference import Translation
    from heedful.inference.streaming import TextSupplier
    from heedful.inference.texts import SplitText

Line = Mapping[str, Any]
OnLine = Callable[[Line], None]
"""Called with each line of a stream, a JSON object."""


class ModelRequest(BaseModel):
    """A request that may name a model."""

    model_config = ConfigDict(extra="forbid")

    model: StrictStr | None = None


class NoRoomError(UserError):
    """The server has no room for a result now; the client may try again later."""


class Upload(NamedTuple):
    """A file of a multipart form."""

    name: str
    """The client's name for it, which is not a path of this machine."""
    data: bytes
    address: str
    """The URL of the server as the client knows it, ending in ``/``."""


class Download(NamedTuple):
    """A response that is a file."""

    name: str
    """The name that clients save it as."""
    data: bytes
    media_type: str


class Limits(Protocol):
    """The limits of the server on one request."""

    @property
    def hypotheses(self) -> int:
        """Maximum beam, and maximum number of results for one text."""
        ...

    @property
    def tokens(self) -> int:
        """Maximum number of generated tokens."""
        ...

    @property
    def answer(self) -> int:
        """Maximum bytes of a response that may be much longer than its request."""
        ...

    @property
    def characters(self) -> int:
        """Maximum characters in all texts."""
        ...

    @property
    def files(self) -> int:
        """Maximum bytes of all files that wait to be downloaded."""
        ...

    @property
    def file_time(self) -> float:
        """Seconds after which a file is deleted."""
        ...


class Model(Protocol):
    """A model of the server."""

    @property
    def name(self) -> str:
        """The name that clients use."""
        ...

    @property
    def predictor(self) -> Any:
        """The predictor from :meth:`heedful.tasks.spec.TaskSpec.load`."""
        ...

    @property
    def source(self) -> str | None:
        """Code of its source language; None if it is unknown or there is none."""
        ...

    @property
    def target(self) -> str | None:
        """Code of its target language; None if it is unknown or there is none."""
        ...


class BatchedPredictor(Protocol):
    """A predictor that runs one search for the texts of several requests (:class:`Search`)."""

    notify: "Callable[[str], None]"
    """Called with notices for the user."""
    batch_tokens: int
    """Maximum padded source tokens times beam in a batch."""
    max_length: int
    """Maximum tokens of a text, END included."""
    options: "SearchOptions"
    """The default search options of requests."""

    @property
    def engine(self) -> object | None:
        """The inference engine that replaces its models, or None. With an engine, texts cannot join
        a running search."""
        ...

    @property
    def link_threshold(self) -> float | None:
        """The minimum attention weight of an alignment link; None if weights have no threshold."""
        ...

    def with_known_spans(self, known: "KnownSpans") -> "BatchedPredictor":
        """A copy that also protects the given spans of certain texts."""
        ...

    def token_counter(self, limit: int) -> "Callable[[Sequence[str]], list[int]]":
        """A function that counts the tokens of texts, for splitting texts of more than a limit."""
        ...

    def ready(self) -> AbstractContextManager[None]:
        """A context in which its models are in evaluation mode."""
        ...

    def translate(
        self, texts: Sequence[str], *, options: "SearchOptions", alignments: bool
    ) -> "list[Translation]":
        """The results of texts, in the same order."""
        ...

    def translate_running(
        self, texts: "TextSupplier", *, options: "SearchOptions", alignments: bool
    ) -> "Iterator[list[tuple[int, Translation]]]":
        """Results with the keys of their texts, which join one search while it runs."""
        ...


@dataclass(frozen=True)
class Search:
    """Texts that are batched with the texts of other requests for the same model."""

    texts: Sequence[str]
    options: "SearchOptions"
    alignments: bool = False
    sentences: bool | None = None
    """Whether lines are split into sentences; the server's default if None."""
    on_part: "Callable[[int, int, SplitText, Translation], None] | None" = None
    """Called with the index of a text, the index of the part, the cut text, and the translation."""
    known: "KnownSpans | None" = None
    """Markup of the texts, which translations keep. They share no batch with other requests."""


@dataclass(frozen=True)
class Work:
    """The work of one request: a search, or a call that runs alone in the model's thread."""

    finish: Callable[[Any], Any]
    """Makes the response from the result of ``search`` or ``call``, outside the model's thread.

    Raises:
        UserError: the response would be too large.
    """
    call: Callable[[], Any] | None = None
    search: Search | None = None
    most: int | None = None
    """Maximum bytes of the response; no limit if None."""
    hint: str = "send less"
    """The end of the error message for a longer response: what the client can do."""


R = TypeVar("R", bound=ModelRequest)


class Endpoint(ABC, Generic[R]):
    """``POST /api/PATH``."""

    path: ClassVar[str]
    request: type[R]
    response: ClassVar[Any] = dict[str, Any]
    """Its schema, for the OpenAPI description."""
    streams: ClassVar[bool] = False
    """Whether the response is lines of JSON, sent as they are produced."""
    only_texts: ClassVar[bool] = True
    """Whether lists in a request contain nothing but texts."""

    @property
    def about(self) -> str:
        """The description for OpenAPI."""
        return (type(self).__doc__ or "").strip()

    def languages(self, request: R) -> tuple[str | None, str | None]:
        """Source and target language by which the model is chosen if none is named."""
        return None, None

    @abstractmethod
    def texts(self, request: R) -> list[str]:
        """The texts of a request, which are counted against the server's limits.

        Raises:
            UserError: the request contradicts itself.
        """

    @abstractmethod
    def work(self, model: Model, request: R, limits: Limits, on_line: OnLine) -> Work:
        """The work of a request.

        Args:
            model: the model.
            request: the request.
            limits: the limits of the server.
            on_line: called with the lines of a stream, except the last one, which is the result.

        Raises:
            UserError: the request exceeds a limit, or this model cannot answer it.
        """


class ModelsByLanguage(Protocol):
    """The models of a server that have a source and a target language."""

    @property
    def codes(self) -> Sequence[str]:
        """Languages served, in the order of the models."""
        ...

    @property
    def pairs(self) -> Mapping[tuple[str, str], Model]:
        """Source and target language → the model."""
        ...

    def sources(self, target: str) -> list[str]:
        """The source languages that are translated into a language."""
        ...

    def targets(self, source: str) -> list[str]:
        """The target languages that a language is translated into."""
        ...

    def require_code(self, given: str) -> str:
        """The served language that matches a client's code; others raise an error."""
        ...

    def of_pair(self, source: str, target: str) -> Any:
        """The model for two served languages; other pairs raise an error."""
        ...

    def choose(self, name: str | None) -> Any:
        """The model with a name; unknown names raise an error."""
        ...


class Server(Protocol):
    """The part of a server that contracts use."""

    @property
    def models(self) -> ModelsByLanguage:
        """Its models by language."""
        ...

    @property
    def limits(self) -> Limits:
        """The limits of a request."""
        ...

    @property
    def shared_files(self) -> Path | None:
        """The folder of translated files, if several processes serve the same port."""
        ...

    @property
    def needs_key(self) -> bool:
        """Whether clients need an API key."""
        ...

    def check_texts(self, texts: Sequence[str]) -> None:
        """Check the number, the length and the encoding of texts."""
        ...


SearchAll = Callable[[Sequence[tuple[Any, Search]]], "Awaitable[list[list[Translation]]]"]
"""Runs the searches of one request, each with its model; cancels them if the client disconnects."""


class Route(NamedTuple):
    """A path of a contract."""

    path: str
    answer: Callable[[Any, SearchAll], Awaitable[Any]]
    """Makes the response to a request: a value that :mod:`json` can write, or a `Download`.

    A ``GET`` has the parts of the path that are in braces as its request, a dictionary. Its name
    and docstring are used in the OpenAPI description. A `UserError` becomes a response with status
    400; None becomes one with status 404.
    """
    response: Any
    """Its schema, for the OpenAPI description."""
    request: type[BaseModel] | None = None
    """The type of a ``POST`` request, sent as JSON or as a form; if None, the route is a ``GET``
    without fields and API key."""
    takes_file: bool = False
    """Whether the request is a multipart form with an `Upload`."""


class Contract(NamedTuple):
    """Routes that serve all models of a task, such as the API of another program."""

    name: str
    """The tag in the OpenAPI description."""
    routes: Sequence[Route]


def plain_code(code: str) -> str:
    """A language code in the form that is compared."""
    return code.strip().lower().replace("_", "-")


def base_code(code: str) -> str:
    """The language of a code, without region and script."""
    return plain_code(code).partition("-")[0]


def too_large(most: int, hint: str) -> UserError:
    """The error for a response of more than ``most`` bytes."""
    return UserError(f"the response would have more than {most:,} bytes; {hint}")


def as_list(text: str | list[str]) -> list[str]:
    """One text or several as a list."""
    return [text] if isinstance(text, str) else text


def search_options(
    usual: "SearchOptions",
    limits: Limits,
    nbest: int = 1,
    beam: int | None = None,
    length_penalty: float | None = None,
) -> "SearchOptions":
    """The default search options of a model, changed by those of a request.

    Raises:
        UserError: an option exceeds the server's limits, or options exclude each other.
    """
    from heedful.decoding import SearchOptions

    most = max(limits.hypotheses, usual.beam)
    width = max(usual.beam if beam is None else beam, nbest)
    if width > most:
        raise UserError(f"a beam of {width:,}; the maximum is {most}")
    changed: dict[str, Any] = {"beam": width, "nbest": nbest}
    if length_penalty is not None:
        changed["length_penalty"] = length_penalty
    try:
        return SearchOptions(**{**usual.model_dump(), **changed})
    except ValidationError as error:
        raise UserError(explain(error, SearchOptions)) from None
