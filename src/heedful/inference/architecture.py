"""The architecture of a model as it ran on one input: its stages, in the order in which they run.

The stages are the model's own modules. Their order, and the shapes of their outputs, are recorded
while the model runs, so that models need no description of themselves.
"""

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from heedful.attention.watching import Watchable
from heedful.inference.observing import Run, observing
from heedful.layers.dropout import Dropout
from heedful.layers.transformer import Residual

_INVISIBLE = (Dropout, nn.Dropout, nn.Identity)
_MOST_ABOUT = 160


@dataclass(frozen=True)
class Stage:
    """One module of a model, or of a stage."""

    name: str
    """In ``model.named_modules()``."""
    title: str
    """Its name for readers."""
    kind: str
    """``embedding``, ``attention``, ``layer`` (with attention inside), ``recurrent``, ``norm``,
    ``linear`` or ``other``."""
    about: str
    """The first sentence of its documentation; empty for PyTorch's own modules."""
    parameters: int
    shape: tuple[int, ...] | None
    """Of its last output without the batch; None if that is not recorded."""
    maps: tuple[str, ...] = ()
    """The attention modules in it."""
    parts: tuple["Stage", ...] = ()


@dataclass(frozen=True)
class Architecture:
    """The stages of a model, one lane for each sequence that it computes."""

    lanes: dict[str, list[Stage]]
    """Axis → stages, in the order in which they run; the last lane decides."""
    parameters: int
    equations: Sequence[str]
    """The attention modules with an equation (:func:`~heedful.inference.equation.equation_of`)."""
    lens: bool
    """Whether the logit lens can be computed (:func:`~heedful.inference.lens.lens_of`)."""


@dataclass
class _Calls:
    """The calls of modules in one run."""

    first: dict[str, int] = field(default_factory=dict)
    last: dict[str, int] = field(default_factory=dict)
    shapes: dict[str, list[tuple[int, ...]]] = field(default_factory=dict)
    count: int = 0

    def begin(self, name: str) -> None:
        self.first.setdefault(name, self.count)
        self.last[name] = self.count
        self.count += 1

    def end(self, name: str, output: Any) -> None:
        while isinstance(output, tuple) and output:
            output = output[0]
        if isinstance(output, Tensor):
            shape = tuple(output.shape[1:] if output.dim() > 2 else output.shape)
            self.shapes.setdefault(name, []).append(shape)

    def shape(self, name: str, length: int) -> tuple[int, ...] | None:
        """The last shape of an output, of those with ``length`` positions if there are any: both
        sides of a model may share an embedding."""
        own = self.shapes.get(name, [])
        fitting = [one for one in own if one[0] == length]
        return (fitting or own)[-1] if own else None


def architecture_of(trace: Callable[[], object]) -> Architecture:
    """The architecture of the model that is traced.

    Args:
        trace: calls the predictor's ``trace``.
    """
    found: list[Architecture] = []

    @contextmanager
    def observer(run: Run) -> Iterator[None]:
        calls = _Calls()
        hooks = []
        for name, part in run.model.named_modules(remove_duplicate=False):
            if name:
                hooks.append(part.register_forward_pre_hook(_beginning(calls, name)))
                hooks.append(part.register_forward_hook(_ending(calls, name)))
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()
        found.append(_describe(run, calls))

    with observing(observer):
        trace()
    return found[-1]


def _beginning(calls: _Calls, name: str) -> Callable[[nn.Module, Any], None]:
    return lambda module, given: calls.begin(name)


def _ending(calls: _Calls, name: str) -> Callable[[nn.Module, Any, Any], None]:
    return lambda module, given, output: calls.end(name, output)


def _describe(run: Run, calls: _Calls) -> Architecture:
    axes = list(run.axes)
    lanes: dict[str, list[tuple[float, Stage]]] = {axis: [] for axis in axes}
    order = -1.0
    for name, part in _stages(run.model, run.axes_of, calls):
        own = [one for one in calls.first if one == name or one.startswith(f"{name}.")]
        # A module of which only methods or parameters are used comes after the one before it.
        order = min((calls.first[one] for one in own), default=order + 1e-3)
        if name in calls.first:
            order = calls.first[name]
        lane = _lane(name, run.axes_of, axes)
        stage = _stage(name, part, run.axes_of, calls, len(run.axes.get(lane, ())))
        lanes.setdefault(lane, []).append((order, stage))
    sorted_lanes = {
        axis: [stage for _, stage in sorted(own, key=lambda one: one[0])]
        for axis, own in lanes.items()
        if own
    }
    parameters = sum(one.numel() for one in run.model.parameters())
    return Architecture(sorted_lanes, parameters, _with_equation(run), _has_lens(run, calls))


def _with_equation(run: Run) -> list[str]:
    found = []
    for name in run.axes_of:
        part = run.model.get_submodule(name)
        if isinstance(part, Watchable) and part.gives_terms:
            found.append(name)
    return found


def _has_lens(run: Run, calls: _Calls) -> bool:
    decided = run.decision is not None and run.decision.tokens is not None
    layers = [] if run.readout is None else run.readout.layers
    return decided and bool(layers) and all(name in calls.first for name in layers)


def _stages(
    model: nn.Module, maps: Mapping[str, Sequence[str]], calls: _Calls, prefix: str = ""
) -> Iterator[tuple[str, nn.Module]]:
    """The top-level modules; lists of layers, and modules that contain such a list, are opened.

    Of the heads of several tasks, those that did not run are left out.
    """
    for own, part in model._modules.items():
        name = f"{prefix}{own}"
        if part is None or isinstance(part, _INVISIBLE):
            continue
        opened = isinstance(part, nn.ModuleList | nn.ModuleDict) or _has_layers(part, name, maps)
        if opened and not isinstance(part, Watchable):
            yield from _stages(part, maps, calls, f"{name}.")
        elif not isinstance(model, nn.ModuleDict) or name in calls.first:
            yield name, part


def _has_layers(part: nn.Module, name: str, maps: Mapping[str, Sequence[str]]) -> bool:
    """Whether a list in the module has layers with attention."""
    return any(
        isinstance(child, nn.ModuleList) and any(one.startswith(f"{name}.{own}.") for one in maps)
        for own, child in part._modules.items()
    )


def _inside(name: str, maps: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    return tuple(one for one in maps if one == name or one.startswith(f"{name}."))


def _stage(
    name: str, part: nn.Module, maps: Mapping[str, Sequence[str]], calls: _Calls, length: int
) -> Stage:
    inside = _inside(name, maps)
    parts = []
    if inside and name not in maps:
        for own, child in part._modules.items():
            if child is not None and not isinstance(child, _INVISIBLE):
                parts.append(_stage(f"{name}.{own}", child, maps, calls, length))
        parts.sort(key=lambda one: _last_leaf(one.name, part, name, calls))
    return Stage(
        name,
        _title(name, part),
        _kind(name, part, inside, maps),
        _about(part),
        sum(one.numel() for one in part.parameters()),
        calls.shape(name, length),
        inside,
        tuple(parts),
    )


def _last_leaf(name: str, parent: nn.Module, prefix: str, calls: _Calls) -> int:
    """When the last innermost module of a part ran: attention may project its keys much earlier."""
    part = parent.get_submodule(name.removeprefix(f"{prefix}."))
    leaves = [
        f"{name}.{own}" if own else name
        for own, leaf in part.named_modules()
        if not list(leaf.children()) and not isinstance(leaf, _INVISIBLE)
    ]
    return max((calls.last.get(leaf, -1) for leaf in leaves), default=-1)


def _lane(name: str, maps: Mapping[str, Sequence[str]], axes: Sequence[str]) -> str:
    """The axis that a stage computes: that of its queries, or one that its name begins with."""
    queries = [maps[one][0] for one in _inside(name, maps) if maps[one][0] in axes]
    if queries:
        return queries[0]
    first = name.partition(".")[0].partition("_")[0]
    if first in axes:
        return first
    if first == "encoder" and "source" in axes:
        return "source"
    if not axes:
        return "input"
    return axes[-1] if "source" in axes else axes[0]


def _kind(
    name: str, part: nn.Module, inside: Sequence[str], maps: Mapping[str, Sequence[str]]
) -> str:
    if name in maps:
        return "attention"
    if inside:
        return "layer"
    for kind, of in (
        ("embedding", nn.Embedding),
        ("recurrent", nn.RNNBase),
        ("norm", nn.LayerNorm),
        ("norm", nn.RMSNorm),
        ("linear", nn.Linear),
    ):
        if isinstance(part, of) or (kind == "recurrent" and _contains(part, of)):
            return kind
    return "embedding" if _contains(part, nn.Embedding) else "other"


def _contains(part: nn.Module, kind: type[nn.Module]) -> bool:
    return any(isinstance(one, kind) for one in part.modules())


def _title(name: str, part: nn.Module) -> str:
    """``encoder.0`` is "Encoder layer 1", ``feed_forward`` "Feed-forward"."""
    *before, own = name.split(".")
    if own.isdigit():
        of = before[-1].replace("_", " ") if before else ""
        of = "" if of == "layers" else of
        return f"{of} layer {int(own) + 1}".strip().capitalize()
    if isinstance(part, Residual):
        return "Residual and norm"
    joined = own.replace("self_attention", "self-attention").replace("cross_att", "cross-att")
    return joined.replace("feed_forward", "feed-forward").replace("_", " ").capitalize()


def _about(part: nn.Module) -> str:
    if not type(part).__module__.startswith("torch."):
        text = inspect.cleandoc(type(part).__doc__ or "").partition("\n\n")[0]
        text = re.sub(r":\w+:`[~.]?([^`]*)`", r"\1", text.replace("\n", " ")).replace("``", "")
        return text if len(text) <= _MOST_ABOUT else ""
    return ""
