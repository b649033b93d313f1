"""The delta rule: a matrix as memory, in which a key's value is replaced instead of added to.

    S_t = α_t S_{t−1} + k_t u_tᵀ,   u_t = β_t (v_t − α_t S_{t−1}ᵀ k_t),   c_t = S_tᵀ q_t

Schlag, Irie, Schmidhuber 2021, "Linear Transformers Are Secretly Fast Weight Programmers", section
4.2, where α = 1. β_t, the strength of writing, is in (0, 1); k and q are
features of key and query, normalised so that writing with β = 1 replaces what the key had before.
α_t in (0, 1] is the decay of the gated delta rule: Yang, Kautz, Hatamizadeh 2024, "Gated Delta
Networks: Improving Mamba2 with Delta Rule", section 3.1. (Both papers write the
transposed matrix.) There are three equivalent forms:

- parallel, :func:`delta_weights`: the weight of each value in each context, by solving one
  triangular system ``[.., L, L]``; weights may be negative and need not sum to 1.
- chunked, :func:`delta_attend`: systems within chunks of the sequence, the matrix between them
  (Yang, Wang, Zhang, Shen, Kim 2024, "Parallelizing Linear Transformers with the Delta Rule over
  Sequence Length", section 3.2).
- recurrent, :func:`delta_step`: a :class:`DeltaState` that is passed from step to step.

Half-precision inputs are computed in float32, also under autocast.
Shapes: L positions, F features, C a chunk's length, N chunks, dv width of the values.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from heedful.attention.checking import check_inputs
from heedful.basics.device import without_autocast

_HALVES = (torch.bfloat16, torch.float16)


class DeltaState(NamedTuple):
    """The matrix after all keys and values so far; its size is independent of their number.

    Example:
        >>> _, state = delta_step(*torch.ones(3, 2, 5, 4), torch.ones(2, 5))
        >>> state.select(torch.tensor([1, 1, 0])).S.shape
        torch.Size([3, 4, 4])
    """

    S: Tensor
    """``[.., F, dv]``."""

    def select(self, rows: Tensor) -> "DeltaState":
        """The entries ``rows [M]`` of the first dimension: reorders, repeats and removes."""
        return DeltaState(self.S[rows])


def delta_attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    strength: Tensor,
    *,
    log_decay: Tensor | None = None,
    state: DeltaState | None = None,
    chunk: int = 64,
) -> Tensor:
    """The context of each position, of the values up to its own, in time linear in L.

    Args:
        query: features ``[.., L, F]``.
        key: features ``[.., L, F]``. If a key's squared length is above 2 / strength, the matrix
            may grow without limit.
        value: ``[.., L, dv]``.
        strength: β in [0, 1] of each position ``[.., L]``; 0 where nothing is written.
        log_decay: log α of each position ``[.., L]``, at most 0; no decay by default.
        state: after earlier positions.
        chunk: the number of positions that are compared with one another at a time. It changes
            only the cost.

    Returns:
        ``[.., L, dv]``.

    Raises:
        TypeError: a tensor is not floating-point.
        ValueError: shapes do not match, or the chunk is below 1.

    Source: Yang, Wang, Zhang, Shen, Kim 2024, section 3.2; with decay: Yang, Kautz, Hatamizadeh
        2024, section 3.3.

    Example:
        >>> keys = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
        >>> values = torch.tensor([[1.0], [2.0], [5.0]])
        >>> delta_attend(keys, keys, values, torch.ones(3))  # the last value replaces the first
        tensor([[1.],
                [2.],
                [5.]])
    """
    return delta_step(query, key, value, strength, log_decay=log_decay, state=state, chunk=chunk)[0]


def delta_step(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    strength: Tensor,
    *,
    log_decay: Tensor | None = None,
    state: DeltaState | None = None,
    chunk: int = 64,
) -> tuple[Tensor, DeltaState]:
    """One or more steps of the recurrent form: write a key and its value, then read.

    Args:
        query: as in :func:`delta_attend`.
        key: as in :func:`delta_attend`.
        value: as in :func:`delta_attend`.
        strength: as in :func:`delta_attend`.
        log_decay: as in :func:`delta_attend`.
        state: after the previous step; None at the first step.
        chunk: as in :func:`delta_attend`.

    Returns:
        The contexts ``[.., L, dv]`` and the state after the last position.

    Raises:
        TypeError: as :func:`delta_attend`.
        ValueError: as :func:`delta_attend`.

    Source: Schlag, Irie, Schmidhuber 2021, section 4.2.

    Example:
        >>> state = None
        >>> for position in torch.eye(2).unsqueeze(1):
        ...     context, state = delta_step(*[position] * 3, torch.ones(1), state=state)
        >>> state.S
        tensor([[1., 0.],
                [0., 1.]])
    """
    if chunk < 1:
        raise ValueError(f"chunk must be at least 1, not {chunk}")
    _check(query, key, value, strength, log_decay)
    with without_autocast(query):
        q, k, v, beta = (_wide(part) for part in (query, key, value, strength))
        decay = None if log_decay is None else _wide(log_decay)
        S = v.new_zeros(*v.shape[:-2], k.shape[-1], v.shape[-1]) if state is None else state.S
        if S.shape[-2:] != (k.shape[-1], v.shape[-1]):
            raise ValueError(
                f"state has S {list(S.shape)}: expected [.., {k.shape[-1]}, {v.shape[-1]}]"
            )
        step = _one if query.shape[-2] == 1 else _chunked
        context, S = step(q, k, v, beta, decay, S, chunk)
    return context.to(value.dtype), DeltaState(S)


def delta_weights(
    query: Tensor,
    key: Tensor,
    strength: Tensor,
    *,
    log_decay: Tensor | None = None,
    rows: Tensor | None = None,
) -> Tensor:
    """The weights ``[.., L, L]`` with which :func:`delta_attend` sums the values.

    They define that function, which itself never computes them. Memory is quadratic.

    Args:
        query: as in :func:`delta_attend`.
        key: as in :func:`delta_attend`.
        strength: as in :func:`delta_attend`.
        log_decay: as in :func:`delta_attend`.
        rows: indices ``[R]`` of the queries to return weights for; all by default.

    Returns:
        ``[.., L, L]`` or ``[.., R, L]``, in float32 for half precision; may be negative.

    Raises:
        TypeError: as :func:`delta_attend`.
        ValueError: as :func:`delta_attend`.

    Source: Yang, Wang, Zhang, Shen, Kim 2024, section 3.2.

    Example:
        >>> key = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
        >>> delta_weights(key, key, torch.ones(2))  # the second value replaces the first
        tensor([[1., 0.],
                [0., 1.]])
    """
    _check(query, key, key, strength, log_decay)
    with without_autocast(query):
        q, k, beta = (_wide(part) for part in (query, key, strength))
        total = None if log_decay is None else _wide(log_decay).cumsum(-1)
        system, read = _system(k, beta, total), _products(q, k, total)
        if rows is not None:
            read = read[..., rows, :]
        weights: Tensor = torch.linalg.solve_triangular(
            system, read, upper=False, left=False, unitriangular=True
        )
        return weights * beta.unsqueeze(-2)


def _wide(tensor: Tensor) -> Tensor:
    return tensor.float() if tensor.dtype in _HALVES else tensor


def _check(
    query: Tensor, key: Tensor, value: Tensor, strength: Tensor, log_decay: Tensor | None
) -> None:
    check_inputs(query=query, key=key, value=value)
    if query.shape != key.shape or value.shape[:-1] != key.shape[:-1]:
        raise ValueError(
            f"query {list(query.shape)}, key {list(key.shape)} and value {list(value.shape)}: the "
            "delta rule needs queries and keys of equal shape, and one value for each key"
        )
    for name, part in (("strength", strength), ("log_decay", log_decay)):
        if part is not None and part.shape != key.shape[:-1]:
            raise ValueError(
                f"{name} {list(part.shape)}: expected {list(key.shape[:-1])}, one for each key"
            )


def _products(left: Tensor, right: Tensor, total: Tensor | None) -> Tensor:
    """Products ``[.., C, C]`` of rows i and j up to i, times α_{j+1} … α_i.

    ``total`` has the sums of log α ``[.., C]``.
    """
    products = (left @ right.transpose(-2, -1)).tril()
    if total is None:
        return products
    differences = total.unsqueeze(-1) - total.unsqueeze(-2)
    return products * differences.tril().exp()  # above the diagonal a ratio may overflow


def _system(keys: Tensor, strength: Tensor, total: Tensor | None) -> Tensor:
    """The matrix A of A u = β (v − what was there before), unit lower triangular ``[.., C, C]``.

    Its diagonal, which is not 1 here, is not read.
    """
    return _products(keys, keys, total) * strength.unsqueeze(-1)


def _one(
    q: Tensor, k: Tensor, v: Tensor, beta: Tensor, decay: Tensor | None, S: Tensor, chunk: int
) -> tuple[Tensor, Tensor]:
    """The equations of a single step."""
    if decay is not None:
        S = S * decay.exp().unsqueeze(-1)
    S = S + k.transpose(-2, -1) @ (beta.unsqueeze(-1) * (v - k @ S))
    return q @ S, S


def _chunked(
    q: Tensor, k: Tensor, v: Tensor, beta: Tensor, decay: Tensor | None, S: Tensor, chunk: int
) -> tuple[Tensor, Tensor]:
    """All chunks' systems at once, then one chunk after another.

    With γ_t = α_1 … α_t in a chunk that begins with S_0, u_t = β_t (v_t − γ_t S_0ᵀ k_t − Σ_{i<t}
    (γ_t / γ_i) (k_t · k_i) u_i): a triangular system whose right side is linear in S_0.
    """
    length, size = q.shape[-2], max(1, min(chunk, q.shape[-2]))
    number = max(1, -(-length // size))
    rest = number * size - length  # positions with β = 0 and α = 1 change nothing
    q, k, v = (F.pad(x, (0, 0, 0, rest)).unflatten(-2, (number, size)) for x in (q, k, v))
    beta = F.pad(beta, (0, rest)).unflatten(-1, (number, size))
    total, before, after, read, kept = None, k, k, q, None
    if decay is not None:
        total = F.pad(decay, (0, rest)).unflatten(-1, (number, size)).cumsum(-1)
        gamma = total.exp().unsqueeze(-1)
        before, read, kept = k * gamma, q * gamma, gamma[..., -1:, :]
        after = k * (total[..., -1:] - total).exp().unsqueeze(-1)
    written = torch.cat([v, before], -1) * beta.unsqueeze(-1)
    solved = torch.linalg.solve_triangular(
        _system(k, beta, total), written, upper=False, unitriangular=True
    )
    # A slice of each chunk in the loop would have a gradient of the size of all chunks.
    own, by_state = (x.unbind(-3) for x in solved.split([v.shape[-1], k.shape[-1]], -1))
    within, read_of, after_of = (x.unbind(-3) for x in (_products(q, k, total), read, after))
    kept_of = None if kept is None else kept.unbind(-3)
    contexts = []
    for n in range(number):
        u = own[n] - by_state[n] @ S
        contexts.append(read_of[n] @ S + within[n] @ u)
        S = (S if kept_of is None else kept_of[n] * S) + after_of[n].transpose(-2, -1) @ u
    return torch.stack(contexts, -3).flatten(-3, -2)[..., :length, :], S
