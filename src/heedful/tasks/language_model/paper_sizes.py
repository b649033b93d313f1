"""Sizes of language models in the literature, for ``heedful info --size``."""

from collections.abc import Mapping
from typing import Any

from heedful.tasks.sketch import PaperSize

_GPT_1 = "Radford et al. 2018, section 4.1"
_GPT_2 = "Radford et al. 2019, table 2; the number of training tokens is not stated"
_GPT_3 = "Brown et al. 2020, table 2.1, with dense attention in all layers"
_LLAMA = "Touvron et al. 2023, table 2"
_LLAMA_3 = "Llama Team 2024, table 3"
_BILLION = 10**9


def _gpt(size: str, vocabulary: int, length: int, source: str, tokens: int | None) -> PaperSize:
    """A GPT, by its size's name in the recipe."""
    tables = {"model": {"kind": "gpt", "size": size, "max_length": length}}
    return PaperSize(
        {**tables, "tokeniser": {"vocabulary_size": vocabulary}, "context": length},
        length,
        source,
        tokens,
    )


def _llama(
    layers: int,
    dim: int,
    heads: int,
    inner: int,
    tokens: int,
    source: str = _LLAMA,
    *,
    vocabulary: int = 32_000,
    length: int = 2048,
    groups: int | None = None,
) -> PaperSize:
    """A decoder of Llama."""
    model: dict[str, Any] = {
        "kind": "gpt",
        "layers": layers,
        "hidden_size": dim,
        "heads": heads,
        "ffn_size": inner,
        "max_length": length,
        "dropout": 0.0,
        "attention_dropout": 0.0,
        "positions": "rotary",
        "norm": "rms",
        "gated": True,
        "activation": "silu",
        "bias": False,
        "tied_embeddings": False,
    }
    if groups is not None:
        model["attention"] = {"key_value_heads": groups}
    tables = {"model": model, "tokeniser": {"vocabulary_size": vocabulary}, "context": length}
    return PaperSize(tables, length, source, tokens * _BILLION)


PAPER_SIZES: Mapping[str, PaperSize] = {
    "gpt-1": _gpt("gpt-1", 40_478, 512, _GPT_1, None),
    **{
        f"gpt2-{size}": _gpt(size, 50_257, 1024, _GPT_2, None)
        for size in ("small", "medium", "large", "xl")
    },
    **{
        f"gpt3-{size}": _gpt(f"gpt3-{size}", 50_257, 2048, _GPT_3, 300 * _BILLION)
        for size in ("small", "medium", "large", "xl", "2.7b", "6.7b", "13b", "175b")
    },
    "llama-7b": _llama(32, 4096, 32, 11_008, 1000),
    "llama-13b": _llama(40, 5120, 40, 13_824, 1000),
    "llama-33b": _llama(60, 6656, 52, 17_920, 1400),
    "llama-65b": _llama(80, 8192, 64, 22_016, 1400),
    "llama3-8b": _llama(
        32, 4096, 32, 14_336, 15_000, _LLAMA_3, vocabulary=128_256, length=8192, groups=8
    ),
    "llama3-70b": _llama(
        80, 8192, 64, 28_672, 15_000, _LLAMA_3, vocabulary=128_256, length=8192, groups=8
    ),
}
"""Name → size. Widths of Llama's feed-forward networks are those of the published models."""
