"""Encode what observers recorded for the page: JSON objects; docs/serving.md lists their fields."""

from typing import Any

from torch import Tensor

from heedful.basics.errors import UserError
from heedful.inference.architecture import Architecture, Stage
from heedful.inference.equation import Equation
from heedful.inference.lens import Lens
from heedful.inference.removal import Removal
from heedful.viewing.labels import token_labels

MOST_NUMBERS = 1 << 18
"""Maximum of numbers in the keys and values of an equation."""


def architecture_json(found: Architecture) -> dict[str, Any]:
    """The stages of a model, lane by lane, and what else can be computed from its run."""
    return {
        "parameters": found.parameters,
        "equations": list(found.equations),
        "lens": found.lens,
        "lanes": [
            {"axis": axis, "stages": [_stage(one) for one in stages]}
            for axis, stages in found.lanes.items()
        ],
    }


def _stage(one: Stage) -> dict[str, Any]:
    return {
        "name": one.name,
        "title": one.title,
        "kind": one.kind,
        "about": one.about,
        "parameters": one.parameters,
        "shape": None if one.shape is None else list(one.shape),
        "maps": list(one.maps),
        "parts": [_stage(part) for part in one.parts],
    }


def equation_json(found: Equation, head: int, query: int) -> dict[str, Any]:
    """The terms of one row of one head.

    Raises:
        UserError: there is no such head or query, or its keys and values are too many numbers.
    """
    row = found.row(head, query)
    numbers = row.keys.numel() + row.values.numel()
    if numbers > MOST_NUMBERS:
        raise UserError(
            f"the {len(row.keys):,} keys and values of a head have {numbers:,} numbers, more than "
            f"the page's {MOST_NUMBERS:,}; give a shorter text or recording"
        )
    return {
        "module": found.module,
        "head": head,
        "row": query,
        "heads": found.heads,
        "rows": found.queries,
        "query": _numbers(row.query),
        "keys": _numbers(row.keys),
        "values": _numbers(row.values),
        "score": row.score,
        "scale": row.scale,
        "vector": None if row.vector is None else _numbers(row.vector),
        "added": _numbers(row.added),
        "scores": _numbers(row.scores),
        "allowed": row.allowed.tolist(),
        "softmax_scale": row.softmax_scale,
        "sink": row.sink,
        "weights": _numbers(row.weights),
        "context": _numbers(row.context),
        "added_context": _numbers(row.added_context),
        "past": row.past,
    }


def lens_json(found: Lens) -> dict[str, Any]:
    """What each layer would predict in the place of each decision."""
    return {
        "layers": found.layers,
        "decided": token_labels(found.decided),
        "predictions": [
            [{**one._asdict(), "labels": token_labels(one.labels)} for one in row]
            for row in found.predictions
        ],
    }


def removal_json(found: Removal) -> dict[str, Any]:
    """The decisions with and without some heads."""
    labels = {name: token_labels(getattr(found, name)) for name in ("decided", "decided_without")}
    return {**found._asdict(), **labels}


def _numbers(tensor: Tensor) -> Any:
    """Nested lists of numbers with eight significant digits, which identify a float32 closely."""
    if tensor.dim() > 1:
        return [_numbers(one) for one in tensor]
    return [float(f"{number:.8g}") for number in tensor.tolist()]
