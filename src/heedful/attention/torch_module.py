"""Weights of ``nn.MultiheadAttention``, copied to and from :class:`.MultiHeadAttention`.

Both compute the same function of the same weights. PyTorch has the projections of queries, keys and
values as rows of one matrix ``in_proj_weight [3·dim, dim]``, or as three if their widths differ.
"""

from collections.abc import Callable
from typing import Any, Protocol, Self, TypeVar

import torch
from torch import Tensor, nn

from heedful.attention.normalizers import Softmax, SoftmaxOffByOne
from heedful.attention.scores import ScaledDot


class Heads(Protocol):
    """What is read of :class:`.MultiHeadAttention`."""

    query_projection: nn.Linear
    key_projection: nn.Linear
    value_projection: nn.Linear | None
    output_projection: nn.Linear | None
    score: Any
    normalize: Any
    positions: Any
    mask: Any
    mixing: Any
    query_key_norm: Any
    gate: Any
    heads: int
    key_heads: int
    head_dim: int
    aggregate: Any
    dropout: float
    training: bool

    def to(self, *, device: torch.device, dtype: torch.dtype) -> Self: ...
    def train(self, mode: bool = True) -> Self: ...


Kind = TypeVar("Kind", bound=Heads)


def converted(kind: Callable[..., Kind], module: nn.MultiheadAttention, parts: Any) -> Kind:
    """See :meth:`.MultiHeadAttention.from_torch`."""
    if not isinstance(module, nn.MultiheadAttention):
        raise TypeError(f"expected an nn.MultiheadAttention, not {type(module).__name__}")
    if module.bias_k is not None:
        raise ValueError(
            "add_bias_kv appends a learned key and value, which no part of an attention here does; "
            "use normalizers.SinkSoftmax for a learned score with value 0"
        )
    if module.add_zero_attn:
        # A key and a value of zeros add exp(0) to the denominator, and nothing to the context.
        parts = {"normalize": SoftmaxOffByOne()} | parts
    like = module.out_proj.weight
    with torch.device("meta"):  # Weights that are overwritten below are not drawn.
        found = kind(
            module.embed_dim,
            module.num_heads,
            key_dim=module.kdim,
            value_dim=module.vdim,
            dropout=module.dropout,
            bias=module.in_proj_bias is not None,
            **parts,
        )
    for ours, weight, bias in _projections(found, module):
        ours.to_empty(device=like.device).to(weight.dtype)
        _copy(ours.weight, weight)
        if bias is not None:
            _copy(ours.bias, bias)
    found.to(device=like.device, dtype=like.dtype)
    return found.train(module.training)


def _projections(
    ours: Heads, theirs: nn.MultiheadAttention
) -> list[tuple[nn.Linear, Tensor, Tensor | None]]:
    """Each projection with the weight and the bias that it has in PyTorch's module."""
    if theirs._qkv_same_embed_dim:
        weights = _parts(theirs.in_proj_weight)
    else:
        weights = [theirs.q_proj_weight, theirs.k_proj_weight, theirs.v_proj_weight]
    biases = [None] * 3 if theirs.in_proj_bias is None else _parts(theirs.in_proj_bias)
    value, output = ours.value_projection, ours.output_projection
    if value is None or output is None:
        raise ValueError("nn.MultiheadAttention has projections of values and of the result")
    names = (ours.query_projection, ours.key_projection, value)
    inner = list(zip(names, weights, biases, strict=True))
    return [*inner, (output, theirs.out_proj.weight, theirs.out_proj.bias)]


def _parts(joined: Tensor) -> list[Tensor]:
    """The rows of queries, keys and values, with the flag of the whole."""
    return [part.requires_grad_(joined.requires_grad) for part in joined.detach().chunk(3)]


def _copy(place: Tensor, given: Tensor) -> None:
    if place.shape != given.shape:
        raise ValueError(
            f"weights of shape {list(given.shape)} do not fit the parts, which need "
            f"{list(place.shape)}"
        )
    place.requires_grad_(given.requires_grad)
    place.detach().copy_(given.detach())


def exported(module: Heads, *, batch_first: bool) -> nn.MultiheadAttention:
    """See :meth:`.MultiHeadAttention.to_torch`."""
    reasons = list(_inexpressible(module))
    if reasons:
        raise ValueError(f"nn.MultiheadAttention has no {' and no '.join(reasons)}")
    query, key, value = module.query_projection, module.key_projection, module.value_projection
    assert value is not None
    weight, dim = query.weight, query.in_features
    with torch.device("meta"):
        found = nn.MultiheadAttention(
            dim,
            module.heads,
            dropout=module.dropout,
            bias=query.bias is not None,
            add_zero_attn=isinstance(module.normalize, SoftmaxOffByOne),
            kdim=key.in_features,
            vdim=value.in_features,
            batch_first=batch_first,
        )
    found.to_empty(device=weight.device).to(weight.dtype)
    _join(found, [query, key, value])
    for ours, weight, bias in _projections(module, found)[3:]:
        _copy(weight, ours.weight)
        if bias is not None:
            _copy(bias, ours.bias)
    return found.train(module.training)


def _join(theirs: nn.MultiheadAttention, inner: list[nn.Linear]) -> None:
    """Copy the projections of queries, keys and values."""
    if theirs._qkv_same_embed_dim:
        _copy(theirs.in_proj_weight, _joined([one.weight for one in inner], "weights"))
    else:
        places = (theirs.q_proj_weight, theirs.k_proj_weight, theirs.v_proj_weight)
        for place, one in zip(places, inner, strict=True):
            _copy(place, one.weight)
    if theirs.in_proj_bias is not None:
        _copy(theirs.in_proj_bias, _joined([one.bias for one in inner], "biases"))


def _joined(parts: list[Tensor], what: str) -> Tensor:
    learnt = {part.requires_grad for part in parts}
    if len(learnt) > 1:
        raise ValueError(
            f"some {what} of queries, keys and values are frozen: nn.MultiheadAttention has one "
            "parameter for the three; set requires_grad alike"
        )
    return torch.cat([part.detach() for part in parts]).requires_grad_(learnt.pop())


def _inexpressible(module: Heads) -> list[str]:
    """What PyTorch's module cannot compute."""
    same = module.heads == module.key_heads
    whole = module.heads * module.head_dim == module.query_projection.in_features
    score, normalize = type(module.score).__name__, type(module.normalize).__name__
    softmax = type(module.normalize) is Softmax and module.normalize.temperature == 1.0
    checks = {
        f"score {score}, only the scaled dot product": type(module.score) is ScaledDot,
        f"normalizer {normalize} with these settings, only the softmax": softmax
        or type(module.normalize) is SoftmaxOffByOne,
        "positions": module.positions is None,
        "mask of its own (pass it at the call)": module.mask is None,
        "query_key_norm": module.query_key_norm is None,
        "mixing of heads": module.mixing is None,
        "gate": module.gate is None,
        f"heads that share keys and values ({module.heads} heads read {module.key_heads})": same,
        f"head_dim {module.head_dim} other than dim / heads": whole,
        f"aggregate '{module.aggregate}', only the projection": module.output_projection
        is not None,
        "shared_key_value": module.value_projection is not None,
        "biases of some projections only": module.output_projection is None
        or (module.query_projection.bias is None) == (module.output_projection.bias is None),
    }
    return [what for what, fits in checks.items() if not fits]
