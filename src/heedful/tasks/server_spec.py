"""The part of a task's contract that the server and its page use."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from pydantic import Field, StrictStr

if TYPE_CHECKING:
    from heedful.tasks.endpoints import Contract, Endpoint, Model, Server

Pair = Annotated[list[StrictStr], Field(min_length=2, max_length=2)]
"""A pair of texts in a request."""


class Panel(NamedTuple):
    """A panel of the page, in which you enter inputs of a model. Tasks may share a panel."""

    name: str
    """Its module in ``viewing/page``: ``classify`` for ``classify.js``."""
    title: str
    """If tasks with different titles share the default panel, it has the default title."""
    takes_second: bool = True
    """Whether the address of the page may contain a second text for the panel."""


class ServerSpec:
    """The part of a task's contract that the server uses."""

    name: str
    panel: Panel = Panel("predict", "Predict")
    """The task's panel of the page; the default panel is a form made from :meth:`input_type`."""
    listing: str = "readers"
    """The list of ``/api/models`` that contains its models: ``models`` or ``readers``. If a trace
    request names no model and ``models`` has one entry, that model is used."""
    media_fields: frozenset[str] = frozenset()
    """The fields of :meth:`input_type` that are images or sounds as data URIs. Their characters do
    not count as text."""
    has_languages: bool = False
    """Whether its models have a source and a target language, so that clients can choose them by
    languages."""

    def endpoints(self) -> "Sequence[Endpoint[Any]]":
        """Endpoints in addition to ``POST /api/predict/{model}``; the same objects at each call."""
        return ()

    def contracts(self, server: "Server") -> "Sequence[Contract]":
        """Routes outside ``/api``, for all models of the task together."""
        return ()

    def input_type(self) -> Any:
        """The type of an input of ``/api/predict``, for pydantic.

        The default is a text; others are ``Pair``, a union of types, or a pydantic model.
        """
        return StrictStr

    def read_request(self, value: Any) -> Any:
        """Convert a value of :meth:`input_type` to a predictor's input; lists become tuples."""
        return tuple(value) if isinstance(value, list) else value

    def set_evaluation_mode(self, predictor: Any) -> None:
        """Put the models of a predictor in evaluation mode, once for the lifetime of a server."""

    def check_traced(self, source: str) -> None:
        """Raise UserError if a text cannot be traced; by default, all texts are accepted."""

    def languages(self, predictor: Any) -> tuple[str | None, str | None]:
        """Source and target language of a predictor; None if unknown."""
        return None, None

    def title(self, model: "Model") -> str:
        """The name of a model in the server's start message."""
        return model.name

    def identity(self, model: "Model") -> dict[str, Any]:
        """The fields of a model in ``/api/models`` between its name and its :meth:`facts`."""
        return {"task": self.name}

    def facts(self, predictor: Any) -> dict[str, Any]:
        """The facts about a predictor in ``/api/models``."""
        return {}


def maps_of(model: Any, **kinds: str) -> list[dict[str, Any]]:
    """The attention maps of a model, as in ``/api/models``.

    Each has its name, its axes, and ``removable``: whether single heads of it can be removed.

    Args:
        model: the model.
        kinds: axis of keys → its kind (:class:`heedful.inference.Axis`); ``tokens`` by default.
    """
    from heedful.inference.removal import removable_heads

    removable = {name for name, _ in removable_heads(model)}
    names = ("name", "query_axis", "key_axis", "step_axis")
    maps = (
        dict(zip(names, (name, *axes), strict=False))
        for name, axes in model.attention_axes().items()
    )
    return [
        {
            **one,
            "key_kind": kinds.get(one["key_axis"], "tokens"),
            "removable": one["name"] in removable,
        }
        for one in maps
    ]
