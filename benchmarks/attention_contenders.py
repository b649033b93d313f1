"""The contenders that ``benchmarks/attention.py`` compares.

A contender builds the tensors of a case. It returns a function that computes the context, and the
tensors whose gradients are computed. ``like`` names an equivalent contender.

Shapes: B batch, H heads, T queries and as many keys, d width of queries, keys and values.
"""

import contextlib
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heedful.attention import (
    Attention,
    MultiHeadAttention,
    attend,
    linear_attend,
    linear_step,
    linear_weights,
    masks,
    use_kernel,
    watch,
)
from heedful.attention.linear import LinearState
from heedful.attention.scores import Additive, Score
from heedful.kernels.additive import additive_scores

HEADS = 8
TOKENS = 2048  # tokens of a batch of short sequences in part B
STEPS = 1024  # maximum length for the recurrent form, which is a Python loop
WATCHED_ROWS = TOP = 8


@dataclass(frozen=True)
class Case:
    """A case to compute."""

    size: int
    """T"""
    width: int
    """Width d, summed over all heads."""
    mask: Literal["none", "causal", "padding"] = "none"
    backward: bool = False


@dataclass(frozen=True)
class Ready:
    """A case with its tensors."""

    compute: Callable[[], Tensor]
    leaves: list[Tensor]
    around: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext
    """A context manager for the forward and the backward pass."""


@dataclass(frozen=True)
class Contender:
    """An implementation to measure.

    Args:
        build: builds the tensors.
        base: the contender that its time is compared with.
        like: a contender with the same outputs and gradients.
        compiles: whether the first call at a size compiles code for that size.
        masks: the masks that it supports.
        most: the maximum T.
        backward: whether gradients are measured.
    """

    build: Callable[[Case], Ready]
    base: str
    like: str | None = None
    compiles: bool = False
    masks: tuple[str, ...] = ("none", "causal", "padding")
    most: int = 1 << 62
    backward: bool = True

    def takes_part(self, case: Case) -> bool:
        """Whether it supports the case."""
        able = self.backward or not case.backward
        return able and case.mask in self.masks and case.size <= self.most


def _made(*shapes: tuple[int, ...]) -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(shape, generator=generator).requires_grad_() for shape in shapes]


# Additive: B = 1; the inputs are projected queries and keys.


class Projected(Score):
    """The additive score of projected queries and keys: ``vᵀ tanh(query + key)``."""

    def __init__(self, v: Tensor) -> None:
        super().__init__()
        self.v = v

    def compare(self, query: Tensor, key: Tensor) -> Tensor:
        return additive_scores(query, key, self.v)

    def tanh_vector(self) -> Tensor:
        return self.v


def _additive(case: Case) -> list[Tensor]:
    rows = (1, case.size, case.width)
    query, key, value, v = _made(rows, rows, rows, (case.width,))
    return [query, key, value, (v.detach() * case.width**-0.5).requires_grad_()]


def _ours(kernel: Literal["tiles"] | None) -> Callable[[Case], Ready]:
    def build(case: Case) -> Ready:
        query, key, value, v = given = _additive(case)
        score = Projected(v)
        compute = functools.partial(attend, query, key, value, score=score)
        return Ready(compute, given, functools.partial(use_kernel, kernel))

    return build


def _with_projections(case: Case) -> Ready:
    query, key, value, _ = _additive(case)
    torch.manual_seed(1)
    score = Additive(case.width, case.width, case.width)
    leaves = [query, key, value, *score.parameters()]
    return Ready(lambda: attend(query, key, value, score=score), leaves)


def _eager(query: Tensor, key: Tensor, value: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(torch.tanh(query.unsqueeze(-2) + key.unsqueeze(-3)) @ v, -1) @ value


def _for_compiling(query: Tensor, key: Tensor, value: Tensor, v: Tensor) -> Tensor:
    """The same as a sum: inductor fuses a sum with tanh, but not a product with v."""
    scores = (torch.tanh(query.unsqueeze(-2) + key.unsqueeze(-3)) * v).sum(-1)
    return torch.softmax(scores, -1) @ value


def _plain(formula: Callable[..., Tensor], *, compiling: bool) -> Callable[[Case], Ready]:
    def build(case: Case) -> Ready:
        given = _additive(case)
        whole = torch.compile(formula, dynamic=False, fullgraph=True) if compiling else formula
        return Ready(lambda: whole(*given), given)

    return build


def _same_width(case: Case) -> Ready:
    query, key, value, _ = _additive(case)
    # The fused kernel needs four dimensions; with three, PyTorch uses its plain formula.
    four = [part.unsqueeze(1) for part in (query, key, value)]
    return Ready(lambda: F.scaled_dot_product_attention(*four).squeeze(1), [query, key, value])


# Dot-product attention.


def _batch(case: Case) -> int:
    """The number of sequences in a batch; 1 for T = 16, which measures the overhead of a call."""
    return 1 if case.size < 64 else max(1, TOKENS // case.size)


def _mask(case: Case, batch: int) -> tuple[masks.Mask | None, dict[str, Any]]:
    """heedful's mask, and the arguments of F.scaled_dot_product_attention; both built in
    advance."""
    if case.mask == "causal":
        return masks.causal(), {"is_causal": True}
    if case.mask == "padding":
        lengths = torch.linspace(max(1, case.size // 2), case.size, batch).long()
        dense = torch.arange(case.size) < lengths.view(-1, 1, 1, 1)
        return masks.padding(lengths), {"attn_mask": dense}
    return None, {}


def _heads(case: Case, heads: int = HEADS) -> list[Tensor]:
    shape = (_batch(case), heads, case.size, case.width // heads)
    return _made(shape, shape, shape)


def _direct(case: Case) -> Ready:
    given = _heads(case)
    _, options = _mask(case, _batch(case))
    return Ready(lambda: F.scaled_dot_product_attention(*given, **options), given)


def _function(case: Case) -> Ready:
    query, key, value = given = _heads(case)
    mask, _ = _mask(case, _batch(case))
    return Ready(lambda: attend(query, key, value, mask=mask), given)


def _module(case: Case) -> Ready:
    query, key, value = given = _heads(case)
    mask, _ = _mask(case, _batch(case))
    module = Attention()
    return Ready(lambda: module(query, key, value, mask=mask), given)


class ByHand(nn.Module):
    """Multi-head self-attention without a library: four linear layers around the kernel."""

    def __init__(self, like: MultiHeadAttention) -> None:
        super().__init__()
        assert like.value_projection is not None
        assert like.output_projection is not None
        self.heads = like.heads
        self.query, self.key = like.query_projection, like.key_projection
        self.value, self.output = like.value_projection, like.output_projection

    def forward(self, tokens: Tensor, **options: Any) -> Tensor:
        """``[B, T, d] -> [B, T, d]``."""
        split = [
            part(tokens).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in (self.query, self.key, self.value)
        ]
        context = F.scaled_dot_product_attention(*split, **options)
        result: Tensor = self.output(context.transpose(1, 2).flatten(2))
        return result


def _layer(case: Case, batch: int) -> tuple[Tensor, MultiHeadAttention]:
    torch.manual_seed(1)
    (tokens,) = _made((batch, case.size, case.width))
    return tokens, MultiHeadAttention(case.width, HEADS)


def _by_hand(case: Case) -> Ready:
    tokens, ours = _layer(case, _batch(case))
    module = ByHand(ours)
    _, options = _mask(case, _batch(case))
    return Ready(lambda: module(tokens, **options), [tokens, *ours.parameters()])


def _multi_head(case: Case) -> Ready:
    tokens, module = _layer(case, _batch(case))
    mask, _ = _mask(case, _batch(case))
    return Ready(lambda: module(tokens, tokens, mask=mask), [tokens, *module.parameters()])


# Linearized attention: B = 1, half the heads.


def _linear_inputs(case: Case) -> tuple[list[Tensor], masks.Mask | None]:
    shape = (1, HEADS // 2, case.size, case.width // HEADS)
    return _made(shape, shape, shape), masks.causal() if case.mask == "causal" else None


def _parallel(case: Case) -> Ready:
    (query, key, value), mask = _linear_inputs(case)
    given = [query, key, value]
    return Ready(lambda: linear_weights(query, key, mask=mask) @ value, given)


def _chunked(case: Case) -> Ready:
    (query, key, value), mask = _linear_inputs(case)
    given = [query, key, value]
    return Ready(lambda: linear_attend(query, key, value, mask=mask), given)


def _recurrent(case: Case) -> Ready:
    (query, key, value), _ = _linear_inputs(case)

    def compute() -> Tensor:
        state: LinearState | None = None
        steps = []
        for t in range(case.size):
            here = slice(t, t + 1)
            context, state = linear_step(
                query[..., here, :], key[..., here, :], value[..., here, :], state
            )
            steps.append(context)
        return torch.cat(steps, -2)

    return Ready(compute, [query, key, value])


def _quadratic(case: Case) -> Ready:
    given, mask = _linear_inputs(case)
    causal = mask is not None
    return Ready(lambda: F.scaled_dot_product_attention(*given, is_causal=causal), given)


# Watching: one layer of self-attention, B = 1.


def _watched(**options: Any) -> Callable[[Case], Ready]:
    def build(case: Case) -> Ready:
        tokens, module = _layer(case, 1)
        wanted = dict(options)
        if "rows" in wanted:
            wanted["rows"] = [i * case.size // wanted["rows"] for i in range(wanted["rows"])]
        if "top_k" in wanted:
            wanted["top_k"] = min(wanted["top_k"], case.size)

        def compute() -> Tensor:
            with watch(module, **wanted) if wanted else contextlib.nullcontext():
                result: Tensor = module(tokens, tokens)
                return result

        return Ready(compute, [tokens, *module.parameters()])

    return build


@dataclass(frozen=True)
class Part:
    """A group of contenders to compare."""

    title: str
    contenders: dict[str, Contender]
    sizes: tuple[int, ...]
    width: int
    masks: tuple[Literal["none", "causal", "padding"], ...] = ("none",)
    passes: tuple[bool, ...] = (False, True)
    """The passes to measure: false is forward, true is forward and backward."""
    seconds: float = 3.0
    """Approximate seconds for a contender and a case after the first call."""
    together: bool = False
    """Whether all run in one process, because a few microseconds matter; otherwise one each."""


OURS, COMPILED, EAGER, SDPA = "ours", "torch.compile, plain", "eager, plain", "SDPA, same width"
DIRECT, BY_HAND, UNWATCHED = "SDPA", "four linear layers and SDPA", "unwatched"

PARTS = {
    "A": Part(
        "Additive attention",
        {
            OURS: Contender(_ours(None), OURS),
            "ours, W₁ and W₂ too": Contender(_with_projections, OURS, most=4096),
            "ours, PyTorch tiles": Contender(_ours("tiles"), OURS, OURS),
            COMPILED: Contender(_plain(_for_compiling, compiling=True), OURS, OURS, compiles=True),
            EAGER: Contender(_plain(_eager, compiling=False), OURS, OURS),
            SDPA: Contender(_same_width, OURS),
        },
        sizes=(256, 1024, 4096, 16384),
        width=256,
    ),
    "B": Part(
        "Dot-product attention",
        {
            DIRECT: Contender(_direct, DIRECT),
            "attend": Contender(_function, DIRECT, DIRECT),
            "Attention": Contender(_module, DIRECT, DIRECT),
            BY_HAND: Contender(_by_hand, BY_HAND),
            "MultiHeadAttention": Contender(_multi_head, BY_HAND, BY_HAND),
        },
        sizes=(16, 64, 256, 1024, 4096),
        width=512,
        masks=("none", "causal", "padding"),
        seconds=1.0,
        together=True,
    ),
    "C": Part(
        "Linearized attention",
        {
            DIRECT: Contender(_quadratic, DIRECT),
            "parallel (the definition)": Contender(_parallel, DIRECT),
            "chunked": Contender(_chunked, DIRECT, "parallel (the definition)"),
            "recurrent, step by step": Contender(
                _recurrent,
                DIRECT,
                "parallel (the definition)",
                masks=("causal",),
                most=STEPS,
                backward=False,
            ),
        },
        sizes=(256, 1024, 4096, 16384),
        width=512,
        masks=("none", "causal"),
        seconds=1.0,
    ),
    "D": Part(
        "The cost of watching",
        {
            UNWATCHED: Contender(_watched(), UNWATCHED),
            "watched whole": Contender(_watched(keep_gradients=False), UNWATCHED, UNWATCHED),
            "rows=8": Contender(_watched(rows=WATCHED_ROWS), UNWATCHED, UNWATCHED),
            "top_k=8": Contender(_watched(top_k=TOP), UNWATCHED, UNWATCHED),
        },
        sizes=(1024, 4096, 8000),
        width=512,
        passes=(False,),
    ),
}
