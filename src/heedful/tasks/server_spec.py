"""What the server and its page ask of a task."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from pydantic import Field, StrictStr

if TYPE_CHECKING:
    from heedful.tasks.endpoints import Contract, Endpoint, Model, Server

Pair = Annotated[list[StrictStr], Field(min_length=2, max_length=2)]
"""A pair of texts in a request."""


class Panel(NamedTuple):
    """A panel of the page, where texts for a model are typed. Several tasks may share one."""

    name: str
    """Its module in ``viewing/page``: ``classify`` for ``classify.js``."""
    title: str
    takes_second: bool = True
    """Whether the page's address may have a second text for it."""


class ServerSpec:
    """The part of a task's contract that is for the server."""

    name: str
    panel: Panel = Panel("predict", "Predict")
    """Of the page; the default one is made from :meth:`input_type`."""
    listing: str = "readers"
    """The list of ``/api/models`` with its models: ``models`` or ``readers``. A request for a trace
    that names no model is for the only one of ``models``."""
    has_languages: bool = False
    """Whether its models have a source and a target language, by which clients choose them."""

    def endpoints(self) -> "Sequence[Endpoint[Any]]":
        """Its endpoints beside ``POST /api/predict/{model}``, the same objects at each call."""
        return ()

    def contracts(self, server: "Server") -> "Sequence[Contract]":
        """What it adds to a server beside ``/api``, for all of its models together."""
        return ()

    def input_type(self) -> Any:
        """The type of one of the ``inputs`` of ``/api/predict``, which pydantic checks.

        A text unless another is given: ``Pair``, a union of types, or a model of its own.
        """
        return StrictStr

    def read_request(self, value: Any) -> Any:
        """A predictor's input from a value of :meth:`input_type`; a pair becomes a tuple."""
        return tuple(value) if isinstance(value, list) else value

    def set_evaluation_mode(self, predictor: Any) -> None:
        """Put the models of a predictor in evaluation mode, because a server may ask any time."""

    def check_traced(self, source: str) -> None:
        """Raise UserError for a text of a request for a trace."""

    def languages(self, predictor: Any) -> tuple[str | None, str | None]:
        """Source and target language of a predictor, where they are known."""
        return None, None

    def title(self, model: "Model") -> str:
        """A model in the list of what is served."""
        return model.name

    def identity(self, model: "Model") -> dict[str, Any]:
        """What ``/api/models`` tells of a model after its name, before its :meth:`facts`."""
        return {"task": self.name}

    def facts(self, predictor: Any) -> dict[str, Any]:
        """What ``/api/models`` tells of a predictor."""
        return {}
