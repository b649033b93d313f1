"""Tables [model.attention] that cover all pairs of settings."""

import functools
import itertools
import json
import random
from typing import Any

from covering import pairwise

SIZES = {"layers": 1, "hidden_size": 16, "ffn_size": 8, "max_length": 16, "dropout": 0.0}
WINDOW = {"name": "window", "before": 2, "after": 0, "sinks": 1}
FACTORS: dict[str, list[Any]] = {
    "score": [
        "scaled-dot", "dot", "general", "trilinear", "concat",
        {"name": "additive", "hidden_size": 3},
        {"name": "cosine", "learned": True}, "gaussian", {"name": "location", "positions": 16},
        "exp-dot", {"name": "soft-capped", "cap": 5.0},
    ],
    "normalizer": [
        {"name": "softmax", "temperature": 0.5}, "softmax-off-by-one", "sink-softmax", "smoothed",
        "sparsemax", "entmax15", "entmax", "plain-sum",
    ],
    "positions": [
        "none", "rotary", "alibi", "t5", {"name": "shaw", "clip": 2}, "transformer-xl",
        {"name": "rotary", "scaling": {"name": "yarn", "length": 4}},
    ],
    "mask": ["none", WINDOW, {"name": "block", "size": 3}],
    "heads": [{"heads": 2}, {"heads": 4, "key_value_heads": 2}, {"heads": 2, "key_value_heads": 1}],
    "join": ["projection", "concatenation"],
    "query_key_norm": ["none", "rms", "layer"],
    "mixing": ["none", "talking-heads", "differential"],
    "gate": ["none", "element", "head"],
}  # fmt: skip


LINEAR: dict[str, list[Any]] = {
    "feature_map": ["elu-plus-one", "relu"],
    "layers": [[{"every": 2, "kind": "linear"}], [{"numbers": [1], "kind": "linear", "heads": 2}]],
    "positions": ["none", "rotary", "alibi"],
    "mask": ["none", WINDOW],
    "score": ["scaled-dot", {"name": "additive", "hidden_size": 3}],
    "heads": [{"heads": 2}, {"heads": 2, "key_value_heads": 1, "mixing": "differential"}],
}  # fmt: skip


def hybrids() -> list[dict[str, Any]]:
    """Linear layers before or after layers with other parts."""
    rows = pairwise(LINEAR)
    for row in rows:
        row |= row.pop("heads")
        feature_map = row.pop("feature_map")
        row["layers"] = [{**own, "feature_map": feature_map} for own in row["layers"]]
    linear = [{"kind": "linear", "heads": 4}, {"kind": "linear", "heads": 2, "feature_map": "relu"}]
    return [*rows, *linear]


def tables() -> list[dict[str, Any]]:
    """Tables ``[model.attention]`` that cover all pairs, and hybrid models."""
    return [*map(corrected, pairwise(FACTORS)), *hybrids()]


@functools.cache
def every_table() -> list[dict[str, Any]]:
    """All tables, each once, in a random order that is always the same; hybrid models last."""
    rows = (dict(zip(FACTORS, row, strict=True)) for row in itertools.product(*FACTORS.values()))
    different = {json.dumps(corrected(row)): None for row in rows}
    found = [json.loads(row) for row in different]
    random.Random(1).shuffle(found)
    return [*found, *hybrids()]


def corrected(row: dict[str, Any]) -> dict[str, Any]:
    """A row with values that go together; exponentials of dot products have a plain sum only."""
    row = dict(row)
    row |= row.pop("heads")
    if row["positions"] == "transformer-xl" and row["score"] not in ("scaled-dot", "dot"):
        row |= {"score": "dot", "normalizer": "softmax"}
    if row["normalizer"] == "plain-sum" and row["positions"] == "transformer-xl":
        row["normalizer"] = "softmax"
    if row["normalizer"] == "plain-sum" or row["score"] == "exp-dot":
        row |= {"normalizer": "plain-sum", "score": "exp-dot"}
    if "location" in str(row["score"]) and row["positions"] not in ("alibi", "t5"):
        row["positions"] = "none"
    if "location" in str(row["score"]):
        row["query_key_norm"] = "none"
    if row["mixing"] == "differential":
        row["join"] = "projection"
    return row


def named(table: dict[str, Any]) -> str:
    return "-".join(
        str(part["name"] if isinstance(part, dict) else part) for part in table.values()
    )


def sizes(attention: dict[str, Any]) -> dict[str, Any]:
    """The table [model]; two layers if they differ."""
    layers = 2 if "layers" in attention else 1
    return {**SIZES, "layers": layers, "heads": 2, "attention": attention}
