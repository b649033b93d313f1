"""What heads contribute: the decisions of a model with and without some of its heads.

    c = W_o [c_1; …; c_H]   with c_h = 0 for each removed head h

Michel et al. 2019, "Are Sixteen Heads Really Better than One?", section 2.3, equation 2 with a mask
variable of 0; Voita et al. 2019.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from heedful.attention.watching import Watchable
from heedful.basics.cancellation import check_cancelled
from heedful.basics.errors import UserError
from heedful.inference.observing import Decision, Run, observing


class Removal(NamedTuple):
    """Decisions of a model on one input, with and without some of its heads."""

    decided: list[str]
    """The decisions of the whole model ``[N]``."""
    before: list[float]
    """Their log-probabilities, natural logarithms."""
    after: list[float]
    """The log-probabilities of the same decisions without the heads ``[N]``."""
    decided_without: list[str]
    """The decisions of the model without the heads ``[M]``: a translator writes another text."""
    without: list[float]
    """Their log-probabilities without the heads."""


@contextmanager
def removed_heads(model: nn.Module, heads: Iterable[tuple[str, int]]) -> Iterator[None]:
    """Set the results of some heads to zero while the block runs.

    Forward passes, searches with caches and gradients all see the model without these heads. Fused
    kernels are not used meanwhile. The weights do not change.

    Args:
        model: any module with attention modules that have an ``output_projection``.
        heads: pairs of a module's name in ``model.named_modules()`` and a head, from 0.

    Raises:
        UserError: there is no such module or head, or the module's heads are not joined by an
            output projection.

    Example:
        >>> import torch
        >>> from heedful.attention import MultiHeadAttention
        >>> layer, x = MultiHeadAttention(8, heads=2, bias=False), torch.ones(1, 3, 8)
        >>> with removed_heads(layer, [("", 0), ("", 1)]):
        ...     bool((layer(x, x) == 0).all())
        True
    """
    chosen: dict[str, set[int]] = {}
    for name, head in heads:
        chosen.setdefault(name, set()).add(head)
    known = dict(model.named_modules())
    with ExitStack() as stack:
        for name, some in chosen.items():
            projection, count = _joined_heads(known.get(name), name, some)
            handle = projection.register_forward_pre_hook(_without(sorted(some), count))
            stack.callback(handle.remove)
        yield


@contextmanager
def head_gates(model: nn.Module, names: Iterable[str]) -> Iterator[dict[str, Tensor]]:
    """Multiply the result of each head by a gate ξ = 1 whose gradient is that of the loss.

    Michel et al. 2019, equation 2: ``c = W_o [ξ_1 c_1; …; ξ_H c_H]``. There is a gate for each row
    of the batch, so that one backward pass computes the gradients of all examples: the gradient of
    a sum of losses with respect to the gates of a row is that of the loss of this row.

    Args:
        model: as in :func:`removed_heads`.
        names: names of attention modules in ``model.named_modules()``.

    Yields:
        Module name → gates ``[B, H]`` that require gradients, once the module has been called. A
        module that is called several times has the same gates in all calls.

    Raises:
        UserError: as :func:`removed_heads`; in the block, if calls have different numbers of rows.

    Example:
        >>> import torch
        >>> from heedful.attention import MultiHeadAttention
        >>> layer, x = MultiHeadAttention(8, heads=2), torch.ones(3, 5, 8)
        >>> with head_gates(layer, [""]) as gates:
        ...     layer(x, x).sum().backward()
        >>> gates[""].grad.shape
        torch.Size([3, 2])
    """
    known, gates = dict(model.named_modules()), dict[str, Tensor]()
    with ExitStack() as stack:
        for name in names:
            projection, count = _joined_heads(known.get(name), name, set())
            handle = projection.register_forward_pre_hook(_gated(gates, name, count))
            stack.callback(handle.remove)
        yield gates


def _gated(
    gates: dict[str, Tensor], name: str, count: int
) -> Callable[[nn.Module, Any], tuple[Tensor]]:
    """A hook that multiplies the heads' parts of the projection's input ``[B, .., H·E]``."""

    def gated(module: nn.Module, given: Any) -> tuple[Tensor]:
        joined: Tensor = given[0]
        rows = len(joined)
        if name not in gates:
            gates[name] = joined.new_ones(rows, count, requires_grad=True)
        if len(gates[name]) != rows:
            raise UserError(f"{name} is called with different numbers of rows")
        parts = joined.unflatten(-1, (count, -1))
        shape = (rows, *[1] * (parts.dim() - 3), count, 1)
        return ((parts * gates[name].view(shape)).flatten(-2),)

    return gated


def removable_heads(model: nn.Module) -> list[tuple[str, int]]:
    """All heads of a model that :func:`removed_heads` can remove, in the order of its modules."""
    found = []
    for name, module in model.named_modules():
        projection = getattr(module, "output_projection", None)
        joined = projection is not None and getattr(module, "aggregate", "") != "mean"
        if isinstance(module, Watchable) and joined:
            found += [(name, head) for head in range(getattr(module, "heads", 1))]
    return found


def _joined_heads(module: nn.Module | None, name: str, heads: set[int]) -> tuple[nn.Module, int]:
    """The output projection of a module, and how many heads it joins."""
    if not isinstance(module, Watchable):
        raise UserError(f"no attention module '{name}' in this model")
    projection, count = getattr(module, "output_projection", None), getattr(module, "heads", 1)
    if projection is None or getattr(module, "aggregate", "") == "mean":
        raise UserError(
            f"the heads of {name or 'this module'} are not joined by a projection, so that none of "
            "them can be removed"
        )
    for head in heads:
        if not 0 <= head < count:
            raise UserError(f"no head {head}; {name} has {count} heads, from 0")
    return projection, count


def _without(heads: list[int], count: int) -> Callable[[nn.Module, Any], tuple[Tensor]]:
    """A hook that sets the heads' parts of the projection's input ``[.., H·E]`` to zero."""

    def without(module: nn.Module, given: Any) -> tuple[Tensor]:
        joined: Tensor = given[0]
        parts = joined.unflatten(-1, (count, -1))
        index = torch.tensor(heads, device=joined.device)
        return (parts.index_fill(-2, index, 0.0).flatten(-2),)

    return without


def effect_of_heads(
    trace: Callable[[], object],
    heads: Iterable[tuple[str, int]],
    search: Callable[[], object] | None = None,
) -> Removal:
    """The decisions of the model that is traced, with and without some heads.

    Args:
        trace: calls the predictor's ``trace`` for one input; called twice.
        heads: as in :func:`removed_heads`.
        search: the same as ``trace``, but without a given output, so that the model without the
            heads writes its own; default: ``trace``.

    Raises:
        UserError: as :func:`removed_heads`; or no head is given.
    """
    some = list(heads)
    if not some:
        raise UserError("no heads to remove; give at least one")

    @contextmanager
    def removing(run: Run) -> Iterator[None]:
        with removed_heads(run.model, some):
            yield

    whole = _run(trace)
    with observing(removing):  # the search is over when the model runs: the same decisions
        same = _decision(_run(trace))
    with removed_heads(whole.model, some):
        other = _decision(_run(search or trace))
    first = _decision(whole)
    return Removal(first.labels, _numbers(first), _numbers(same), other.labels, _numbers(other))


def _run(trace: Callable[[], object]) -> Run:
    """The run of the model in one call of ``trace``."""
    check_cancelled()
    found: list[Run] = []

    @contextmanager
    def observer(run: Run) -> Iterator[None]:
        yield
        found.append(run)

    with observing(observer):
        trace()
    return found[-1]


def _decision(run: Run) -> Decision:
    if run.decision is None:
        raise UserError("this model makes no decisions whose probabilities are known")
    return run.decision


def _numbers(decision: Decision) -> list[float]:
    found: list[float] = decision.log_probabilities.detach().float().tolist()
    return found
