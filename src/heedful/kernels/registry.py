"""All compiled operations: for each the plain reference, the conditions and the test.

``docs/kernels.md`` has the table.
"""

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch.nn.functional as F

from heedful.kernels import (
    additive_compiled,
    cached_attention,
    cross_entropy_compiled,
    distances,
    dropout,
    program,
    recurrent_cell,
    recurrent_direction,
    recurrent_input_feeding,
    recurrent_unrolled,
    short_attention,
    short_attention_operators,
    source_attention,
    topk,
)
from heedful.kernels.additive import additive_attention, additive_scores
from heedful.kernels.additive_rows import AdditiveRows
from heedful.kernels.additive_tiles import plain_scores
from heedful.kernels.cross_entropy import cross_entropy, plain_cross_entropy

Library = Callable[[], ctypes.CDLL | None]


@dataclass(frozen=True)
class Operation:
    """A function that decides by its tensors whether compiled code or its plain form computes."""

    function: Callable[..., Any]
    """What is called."""
    plain: Callable[..., Any] | None
    """What it must compute; None where that is what modules compute, which it knows nothing of."""
    when: str
    """When compiled code computes."""
    test: str
    """The file of tests that compares the two."""
    libraries: tuple[Library, ...] = ()
    """What loads the compiled code, None without a compiler."""
    operators: tuple[str, ...] = ()
    """Names under ``torch.ops.heedful``; each has a backward operator, too."""

    @property
    def name(self) -> str:
        """As in ``topk.best``."""
        return _name(self.function)


_CPU = "float32 on the CPU"
_SEARCH = f"{_CPU}, without gradients"
_LOOPS = (recurrent_cell.library, source_attention.library)

OPERATIONS = (
    Operation(
        additive_scores,
        plain_scores,
        f"more than 2¹⁸ hidden units over all query–key pairs; {_CPU}, or CUDA with Triton",
        "test_additive_kernels.py",
        (additive_compiled.library,),
        ("additive_scores",),
    ),
    Operation(
        additive_attention,
        AdditiveRows.plain,
        f"more than 2¹⁸ hidden units over all query–key pairs; {_CPU}, or CUDA with Triton",
        "test_additive_kernels.py",
        (additive_compiled.library,),
        ("additive_context",),
    ),
    Operation(
        short_attention_operators.short_attention,
        F.scaled_dot_product_attention,
        f"{_CPU}, up to 128 positions, at least 2¹⁹ products B·H·Q·K·D, no dropout",
        "test_short_attention.py",
        (short_attention.library,),
        ("short_attention",),
    ),
    Operation(
        distances.squared_distances,
        distances.plain_distances,
        "always, except for forward-mode gradients; no C: the backward pass runs in blocks of rows",
        "test_forward_mode.py",
        (),
        ("squared_distances",),
    ),
    Operation(
        cached_attention.Steps.read,
        cached_attention.Steps.plain_read,
        _SEARCH,
        "test_steps.py",
        (cached_attention.library,),
    ),
    Operation(
        source_attention.attend_to_sources,
        source_attention.plain_source_attention,
        _SEARCH,
        "test_recurrent_compiled.py",
        (source_attention.library,),
    ),
    Operation(
        recurrent_cell.next_state,
        recurrent_cell.cell_step,
        _SEARCH,
        "test_recurrent_compiled.py",
        (recurrent_cell.library,),
    ),
    Operation(
        recurrent_unrolled.unrolled,
        recurrent_unrolled.Unrolled.plain,
        f"{_CPU}; softmax over an additive score, one layer",
        "test_loop_operators.py",
        _LOOPS,
        ("recurrent_unrolled",),
    ),
    Operation(
        recurrent_input_feeding.fed,
        recurrent_input_feeding.Fed.plain,
        f"{_CPU}; softmax over a concat, general or dot score, one layer",
        "test_loop_operators.py",
        _LOOPS,
        ("recurrent_fed",),
    ),
    Operation(
        recurrent_direction.direction,
        recurrent_direction.Direction.plain,
        f"{_CPU}, with gradients",
        "test_loop_operators.py",
        _LOOPS,
        ("recurrent_direction",),
    ),
    Operation(
        cross_entropy,
        plain_cross_entropy,
        f"{_CPU}, no bias",
        "test_losses.py",
        (cross_entropy_compiled.library,),
        ("cross_entropy",),
    ),
    Operation(
        dropout.dropout,
        dropout.plain_dropout,
        _CPU,
        "test_losses.py",
        (dropout.library,),
        ("dropout",),
    ),
    Operation(topk.best, topk.plain_best, _SEARCH, "test_steps.py", (topk.library,)),
    Operation(
        program.Program,
        None,
        f"{_SEARCH}; selected by the pass heedful.inference.fusing",
        "test_fused.py",
        (program.library,),
    ),
)
"""What there is."""


def table() -> str:
    """The operations as a table in Markdown."""
    lines = [
        "| operation | reference | condition for compiled code | test |",
        "| --- | --- | --- | --- |",
    ]
    for one in OPERATIONS:
        plain = "the modules" if one.plain is None else f"`{_name(one.plain)}`"
        lines.append(f"| `{one.name}` | {plain} | {one.when} | `{one.test}` |")
    return "\n".join(lines)


def _name(function: Callable[..., Any]) -> str:
    module = function.__module__ or "torch"
    short = "torch" if module.startswith("torch") else module.rpartition(".")[2]
    return f"{short}.{function.__qualname__}"
