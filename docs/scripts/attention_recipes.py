"""The tables of docs/attention.md: the parts that recipes can name, and what supports them.

`python docs/scripts/attention_recipes.py` writes them between the marks in the page.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from heedful.attention.feature_maps import FeatureMapSettings
from heedful.attention.masks import MaskSettings
from heedful.attention.mechanism import Mechanism
from heedful.attention.normalizers import NormalizerSettings, RecurrentNormalizer, Softmax
from heedful.attention.positions import HeadSizes, PositionSettings
from heedful.attention.scores import RecurrentScore, ScaledDot, ScoreSettings
from heedful.basics.parts import PartSettings

PAGE = Path(__file__).parents[1] / "attention.md"
BEGIN, END = "<!-- attention_recipes.py -->", "<!-- end -->"
WIDTH, HEADS = 8, 2


def rows() -> Iterator[tuple[str, ...]]:
    """Key, name, settings, computation, models and export of each part."""
    for kind in ScoreSettings.parts.values():
        score = kind(name=name_of(kind)).build(WIDTH, WIDTH)
        form = fast(Mechanism(score, Softmax()))
        where = "recurrent" if isinstance(score, RecurrentScore) else "all"
        yield "score", *described(kind), form, where, mark(name_of(kind) == "scaled-dot")
    for normal in NormalizerSettings.parts.values():
        normalize = normal(name=name_of(normal)).build(HEADS, WIDTH)
        where = "recurrent" if normal.not_for_heads else "all"
        where = "recurrent" if isinstance(normalize, RecurrentNormalizer) else where
        where = where if normal.passes_gradient else "none"
        form = fast(Mechanism(ScaledDot(), normalize))
        yield "normalizer", *described(normal), form, where, mark(name_of(normal) == "softmax")
    for place in PositionSettings.parts.values():
        own = place(name=name_of(place))
        within = own.build_relative(HeadSizes(WIDTH, HEADS))
        form = "fused" if within is None else fast(Mechanism(ScaledDot(), Softmax(), within))
        if within is not None and within.biases and form == "fused":
            form = "fused, with a bias ``[H, Q, K]``".replace("``", "`")
        exported = name_of(place) in ("sinusoidal", "learned")
        where = "Transformer, BERT, GPT"
        yield "positions", *described(place), form, where, mark(exported)
    for mask in MaskSettings.parts.values():
        name = name_of(mask)
        form = "fused" if name == "none" else "fused; plain in decoding steps"
        where = "Transformer, BERT, GPT"
        if mask.reads_vectors:
            form, where = f"selected blocks only; {form}", "decoder of a Transformer, GPT"
        yield "mask", *described(mask), form, where, mark(name == "none")
    for features in FeatureMapSettings.parts.values():
        form, where = "sums in linear time", "Transformer (not `cross`), BERT, GPT"
        if features.may_be_negative:
            where = "delta rule: decoder of a Transformer, GPT"
        yield "feature_map", *described(features), form, where, mark(yes=False)


def fast(mechanism: Mechanism) -> str:
    """How the context is computed."""
    return mechanism.computed(WIDTH)


def name_of(kind: type[PartSettings]) -> str:
    return str(kind.model_fields["name"].default)


def described(kind: type[PartSettings]) -> tuple[str, str]:
    """The name of a part, and its settings with their defaults."""
    own = [
        f"`{key}` = {shown(field.default)}"
        for key, field in kind.model_fields.items()
        if key != "name"
    ]
    return f"`{name_of(kind)}`", ", ".join(own) or "–"


def shown(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float | int):
        return f"{value:,}".replace(".0", "")
    return "not set" if value is None else str(value)


def mark(yes: bool) -> str:
    return "yes" if yes else "no"


def table() -> str:
    """The table in Markdown."""
    torch.manual_seed(0)
    lines = ["| key | name | settings | computed | models | export |", "| --- " * 6 + "|"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows())])


if __name__ == "__main__":
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    PAGE.write_text(f"{before}{BEGIN}\n{table()}\n{END}{after}", encoding="utf-8")
