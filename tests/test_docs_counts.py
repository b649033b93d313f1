"""The counts in docs/systems.md: from the formula, from the models, from the paper's table."""

from pathlib import Path
from typing import NamedTuple

import torch

from heedful.models.transformer import Transformer, TransformerSettings

PAGE = Path(__file__).parents[1] / "docs" / "systems.md"
SYMBOLS = 37_000


class Shape(NamedTuple):
    layers: int = 6
    dim: int = 512
    inner: int = 2048
    heads: int = 8


def in_layers(shape: Shape, head_dim: int | None = None) -> int:
    """Parameters of encoder and decoder layers, as docs/systems.md writes them out."""
    layers, dim, inner, heads = shape
    keys_wide, values_wide = heads * (head_dim or dim // heads), dim
    attention = 2 * (dim * keys_wide + keys_wide) + 2 * (dim * values_wide + values_wide)
    feed_forward = dim * inner + inner + inner * dim + dim
    norm = 2 * dim
    encoder = attention + feed_forward + 2 * norm
    decoder = 2 * attention + feed_forward + 3 * norm
    return layers * (encoder + decoder)


def built(vocabulary: int, **options: object) -> int:
    with torch.device("meta"):
        model = Transformer(TransformerSettings(**options), vocabulary, vocabulary)
    return sum(p.numel() for p in model.parameters())


def test_parameter_counts_in_the_docs_are_those_of_the_models() -> None:
    text = PAGE.read_text(encoding="utf-8")
    base, big = Shape(), Shape(dim=1024, inner=4096, heads=16)
    counts = {
        in_layers(base): None,
        in_layers(base) + SYMBOLS * 512: built(SYMBOLS, size="base"),
        in_layers(big) + SYMBOLS * 1024: built(SYMBOLS, size="big"),
        in_layers(base) + 2 * SYMBOLS * 512: built(SYMBOLS, size="base", tied_embeddings="output"),
        in_layers(base) + 3 * SYMBOLS * 512: built(SYMBOLS, size="base", tied_embeddings="none"),
        in_layers(base) + 41_000 * 512: built(41_000, size="base"),
        in_layers(base) + 2 * 2 * 512 + SYMBOLS * 512: built(SYMBOLS, size="base", pre_norm=True),
        in_layers(Shape(4, 128, 256, 4)) + 10_000 * 128: built(10_000, size="tiny"),
    }
    for by_formula, by_model in counts.items():
        assert by_model in (None, by_formula)
        assert f"{by_formula:,}" in text, f"{by_formula:,}"


def test_the_papers_rounded_counts_leave_room_for_one_table_size() -> None:
    """Table 3 of Vaswani et al. 2017: which numbers of symbols give its millions?"""
    rows = [
        (65, Shape(), None),
        *((58, Shape(), 16), (60, Shape(), 32)),
        *((36, Shape(layers=2), None), (50, Shape(layers=4), None), (80, Shape(layers=8), None)),
        *((28, Shape(dim=256), None), (168, Shape(dim=1024), None)),
        *((53, Shape(inner=1024), None), (90, Shape(inner=4096), None)),
    ]
    bounds = [
        [(1e6 * (millions + half) - in_layers(shape, head)) / shape.dim for half in (-0.5, 0.5)]
        for millions, shape, head in rows
    ]
    least, most = max(low for low, _ in bounds), min(high for _, high in bounds)
    text = " ".join(PAGE.read_text(encoding="utf-8").split())
    assert f"{int(least) + 1:,} to {int(most):,} symbols" in text
    big = Shape(dim=1024, inner=4096, heads=16)
    own = [(1e6 * (213 + half) - in_layers(big)) / 1024 for half in (-0.5, 0.5)]
    assert f"{int(own[0]) + 1:,} to {int(own[1]):,}" in text
