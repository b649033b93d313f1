"""Counts the floating-point operations of matrix products: multiplications and additions.

PyTorch's counter sees single matrix products. It does not see what a library computes in one call
(oneDNN's LSTM, cuDNN's recurrent networks, flash attention on the CPU), nor heedful's C code, which
reports its operations (:mod:`heedful.basics.operation_counting`). Without them, comparisons of
models would be wrong. Operations that activation checkpointing repeats do not count.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Self

import torch
from torch.utils.flop_counter import (
    FlopCounterMode,
    sdpa_backward_flop_count,
    sdpa_flop_count,
)

from heedful.basics.operation_counting import counting

Shape = Sequence[int]


class OperationCounter(FlopCounterMode):
    """PyTorch's counter, extended by further operations."""

    def __init__(self, formulas: dict[Any, Any]) -> None:
        super().__init__(display=False, custom_mapping=formulas)
        self._in_c = 0

    def __enter__(self) -> Self:
        self._in_c, self._listening = 0, ExitStack()
        self._listening.enter_context(counting(self._add, self._pause))
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *given: Any) -> Any:
        self._listening.close()
        return super().__exit__(*given)  # type: ignore[no-untyped-call]

    def get_total_flops(self) -> int:
        """All operations counted so far."""
        return super().get_total_flops() + self._in_c

    def _add(self, operations: int) -> None:
        self._in_c += operations

    @contextmanager
    def _pause(self) -> Iterator[None]:
        """Subtract what is counted inside the block."""
        before = self.get_total_flops()
        try:
            yield
        finally:
            self._in_c -= self.get_total_flops() - before


def operation_counter() -> OperationCounter:
    """A counter of all operations inside the block, backward passes included.

    Example:
        >>> lstm = torch.nn.LSTM(2, 3)
        >>> with operation_counter() as counter:
        ...     _ = lstm(torch.zeros(5, 1, 2))
        >>> counter.get_total_flops() == 5 * 2 * (12 * 2 + 12 * 3)
        True
    """
    aten = torch.ops.aten
    formulas: dict[Any, Any] = {
        aten.mv: _matrix_by_vector,
        aten.mkldnn_rnn_layer: _onednn,
        aten.mkldnn_rnn_layer_backward: _onednn_backward,
        aten._cudnn_rnn: _cudnn,
        aten._cudnn_rnn_backward: _cudnn_backward,
        aten._scaled_dot_product_flash_attention_for_cpu: _attention,
        aten._scaled_dot_product_flash_attention_for_cpu_backward: _attention_backward,
        aten.addmm_: _added_product,
        aten.convolution_backward: _convolution_backward,
    }
    return OperationCounter(formulas)


def _added_product(_: Shape, left: Shape, right: Shape, **__: Any) -> int:
    return 2 * math.prod(left) * right[-1]


def _convolution_backward(
    grad: Shape,
    inputs: Shape,
    weight: Shape,
    bias: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
    wanted: Sequence[bool],
    **_: Any,
) -> int:
    """Each gradient, of the inputs and of the weight, has the operations of the forward pass. In
    PyTorch's formula, that of the weight has as many times more as there are groups."""
    places = math.prod((inputs if transposed else grad)[2:])
    return 2 * grad[0] * places * math.prod(weight) * sum(wanted[:2])


def _matrix_by_vector(matrix: Shape, vector: Shape, *_: Any, **__: Any) -> int:
    return 2 * math.prod(matrix)


def _onednn(inputs: Shape, input_weight: Shape, state_weight: Shape, *_: Any, **__: Any) -> int:
    """One layer in one direction: ``inputs [T, B, E]`` through ``[4H, E]``, states ``[4H, H]``."""
    return 2 * math.prod(inputs[:-1]) * (math.prod(input_weight) + math.prod(state_weight))


def _onednn_backward(*shapes: Any, **others: Any) -> int:
    return 2 * _onednn(*shapes, **others)


def _cudnn(inputs: Shape, weights: Sequence[Shape], *_: Any, **__: Any) -> int:
    """All layers and directions. Each of ``inputs [.., E]`` is multiplied by every matrix."""
    matrices = sum(math.prod(weight) for weight in weights if len(weight) == 2)
    return 2 * math.prod(inputs[:-1]) * matrices


def _cudnn_backward(*shapes: Any, **others: Any) -> int:
    return 2 * _cudnn(*shapes, **others)


def _attention(query: Shape, key: Shape, value: Shape, *_: Any, **__: Any) -> int:
    return int(sdpa_flop_count(query, key, value))


def _attention_backward(
    grad: Shape, query: Shape, key: Shape, value: Shape, *_: Any, **__: Any
) -> int:
    return int(sdpa_backward_flop_count(grad, query, key, value))
