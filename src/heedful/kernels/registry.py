"""All compiled operations, each with its plain reference, its condition and its test.

``docs/kernels.md`` contains the table.
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
    """A function that runs compiled code or its plain reference, depending on its tensors."""

    function: Callable[..., Any]
    """The function to call."""
    plain: Callable[..., Any] | None
    """The reference; None if the reference is the modules, which kernels do not know."""
    when: str
    """The condition for compiled code."""
    test: str
    """The test file that compares the two."""
    libraries: tuple[Library, ...] = ()
    """Functions that load the compiled code; they return None without a compiler."""
    operators: tuple[str, ...] = ()
    """Names under ``torch.ops.heedful``. Each has a backward operator as well."""

    @property
    def name(self) -> str:
        """Module and function, such as ``topk.best``."""
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
        recurrent_input_feeding.input_feeding_loop,
        recurrent_input_feeding.InputFeeding.plain,
        f"{_CPU}; softmax over a concat, general or dot score, one layer",
        "test_loop_operators.py",
        _LOOPS,
        ("recurrent_input_feeding",),
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
        _CPU,
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
"""All operations."""


def table() -> str:
    """The operations as a Markdown table."""
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
