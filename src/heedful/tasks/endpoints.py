"""What a task offers over HTTP: its endpoints and contracts, their requests, responses and work.

The server checks a request, finds the model, counts texts against its limits, queues the work and
sends the result. A task declares the rest, and knows nothing of HTTP.
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict, StrictStr, ValidationError

from heedful.basics.errors import UserError
from heedful.basics.settings import explain

if TYPE_CHECKING:
    from heedful.data.tokeniser import Tokenisers
    from heedful.decoding import SearchOptions
    from heedful.inference import Translation
    from heedful.inference.streaming import TextSupplier
    from heedful.inference.texts import Cut

Line = Mapping[str, Any]
OnLine = Callable[[Line], None]
"""Takes a line of a stream, as a JSON object."""


class ModelRequest(BaseModel):
    """A request that may name a model."""

    model_config = ConfigDict(extra="forbid")

    model: StrictStr | None = None


class Limits(Protocol):
    """What the server takes on in one request."""

    @property
    def hypotheses(self) -> int:
        """The widest beam, and the most results for one text."""
        ...

    @property
    def tokens(self) -> int:
        """The most tokens that are generated."""
        ...

    @property
    def answer(self) -> int:
        """The most bytes of a response that grows faster than its request."""
        ...

    @property
    def characters(self) -> int:
        """The most characters of all texts."""
        ...


class Model(Protocol):
    """A model of the server."""

    @property
    def name(self) -> str:
        """As clients name it."""
        ...

    @property
    def predictor(self) -> Any:
        """Of :meth:`heedful.tasks.spec.TaskSpec.load`."""
        ...

    @property
    def source(self) -> str | None:
        """Code of its source language; None if it is not known or there is none."""
        ...

    @property
    def target(self) -> str | None:
        """Code of its target language; None if it is not known or there is none."""
        ...


class BatchedPredictor(Protocol):
    """A predictor that searches for the texts of several requests together (:class:`Search`)."""

    say: "Callable[[str], None]"
    """Takes notices."""
    batch_tokens: int
    """Padded source tokens times beam that go through the model at once."""
    max_length: int
    """Tokens of a text, END included."""
    options: "SearchOptions"
    """How it searches where a request does not say it."""
    tokenisers: "Tokenisers"

    @property
    def engine(self) -> object | None:
        """What searches in place of its models: texts cannot enter a search that runs."""
        ...

    @property
    def link_threshold(self) -> float | None:
        """The weight from which words are linked; None without alignments."""
        ...

    def ready(self) -> AbstractContextManager[None]:
        """Its models in evaluation mode."""
        ...

    def translate(
        self, texts: Sequence[str], *, options: "SearchOptions", alignments: bool
    ) -> "list[Translation]":
        """The results of texts, in their order."""
        ...

    def translate_running(
        self, texts: "TextSupplier", *, options: "SearchOptions", alignments: bool
    ) -> "Iterator[list[tuple[int, Translation]]]":
        """The results of texts that enter one search as others leave it, with their numbers."""
        ...


@dataclass(frozen=True)
class Search:
    """Texts that are batched with the texts of other requests for the same model."""

    texts: Sequence[str]
    options: "SearchOptions"
    alignments: bool = False
    sentences: bool | None = None
    """Whether lines are split into sentences; as the server is set up if None."""
    on_part: "Callable[[int, int, Cut, Translation], None] | None" = None
    """Called with a text's index, its part's index, the text as it was cut, and the translation."""


@dataclass(frozen=True)
class Work:
    """The work of one request: a search, or a call that runs alone in the model's thread."""

    finish: Callable[[Any], Any]
    """Makes the response of what ``search`` or ``call`` found, outside of the model's thread.

    Raises:
        UserError: the response would be too large.
    """
    call: Callable[[], Any] | None = None
    search: Search | None = None
    most: int | None = None
    """The most bytes of the response; any number if None."""
    hint: str = "send less"
    """What a client can do about a response of more bytes."""


R = TypeVar("R", bound=ModelRequest)


class Endpoint(ABC, Generic[R]):
    """``POST /api/PATH``."""

    path: ClassVar[str]
    request: type[R]
    response: ClassVar[Any] = dict[str, Any]
    """Its schema, for the OpenAPI description."""
    streams: ClassVar[bool] = False
    """Whether the response is lines of JSON, sent as they are made."""

    @property
    def about(self) -> str:
        """What it does, for the OpenAPI description."""
        return (type(self).__doc__ or "").strip()

    def languages(self, asked: R) -> tuple[str | None, str | None]:
        """Source and target language by which the model is chosen if none is named."""
        return None, None

    @abstractmethod
    def texts(self, asked: R) -> list[str]:
        """The texts of a request, which are counted against the server's limits.

        Raises:
            UserError: the request contradicts itself.
        """

    @abstractmethod
    def work(self, model: Model, asked: R, limits: Limits, on_line: OnLine) -> Work:
        """The work of a request.

        Args:
            model: that answers.
            asked: the request.
            limits: of the server.
            on_line: takes the lines of a stream, but for its last one, which is the result.

        Raises:
            UserError: the request is beyond a limit, or cannot be answered by this model.
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
        """What is translated into a language."""
        ...

    def targets(self, source: str) -> list[str]:
        """What a language is translated into."""
        ...

    def require_code(self, given: str) -> str:
        """The served language that a client means; another is refused."""
        ...

    def of_pair(self, source: str, target: str) -> Any:
        """The model for two served languages; others are refused."""
        ...


class Server(Protocol):
    """A server, as its contracts see it."""

    @property
    def models(self) -> ModelsByLanguage:
        """Its models by language."""
        ...

    @property
    def limits(self) -> Limits:
        """Of a request."""
        ...

    @property
    def needs_key(self) -> bool:
        """Whether clients need an API key."""
        ...

    def check_texts(self, texts: Sequence[str]) -> None:
        """Refuse texts that are too many, too long, or not valid Unicode."""
        ...


SearchAll = Callable[[Sequence[tuple[Any, Search]]], "Awaitable[list[list[Translation]]]"]
"""Runs the searches of one request, each with its model; cancels them if the client disconnects."""


class Route(NamedTuple):
    """A path of a contract."""

    path: str
    answer: Callable[[Any, SearchAll], Awaitable[Any]]
    """Makes the response to a request (None for ``GET``), which :mod:`json` can write.

    Its name and docstring are those of the operation in the OpenAPI description. A `UserError` that
    it raises is an error 400.
    """
    response: Any
    """Its schema, for the OpenAPI description."""
    request: type[BaseModel] | None = None
    """Of ``POST``, as JSON or as a form; ``GET`` without fields and API key if None."""


class Contract(NamedTuple):
    """Paths of the server that span all models of a task, such as those of another program."""

    name: str
    """For the OpenAPI description."""
    routes: Sequence[Route]


def plain_code(code: str) -> str:
    """A language code as it is compared."""
    return code.strip().lower().replace("_", "-")


def base_code(code: str) -> str:
    """The language of a code, without region and script."""
    return plain_code(code).partition("-")[0]


def too_large(most: int, hint: str) -> UserError:
    """The error for a response of more than ``most`` bytes."""
    return UserError(f"the answer would have more than {most:,} bytes; {hint}")


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
    """A model's own search options with those of a request.

    Raises:
        UserError: they are beyond the server's limits, or exclude each other.
    """
    from heedful.decoding import SearchOptions

    most = max(limits.hypotheses, usual.beam)
    width = max(usual.beam if beam is None else beam, nbest)
    if width > most:
        raise UserError(f"a beam of {width:,}; the most is {most}")
    changed: dict[str, Any] = {"beam": width, "nbest": nbest}
    if length_penalty is not None:
        changed["length_penalty"] = length_penalty
    try:
        return SearchOptions(**{**usual.model_dump(), **changed})
    except ValidationError as error:
        raise UserError(explain(error, SearchOptions)) from None
