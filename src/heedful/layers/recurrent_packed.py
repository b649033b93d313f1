"""Training of a recurrent network over sequences of different lengths on the CPU.

PyTorch's networks record each operation of each step for the backward pass, about twenty per step.
Here each direction of a layer is one operator (:mod:`heedful.kernels.recurrent_direction`).
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from heedful.kernels.dropout import dropout
from heedful.kernels.recurrent_cell import choose_loop
from heedful.kernels.recurrent_direction import direction

_CELLS = {"RNN_TANH": "rnn", "GRU": "gru", "LSTM": "lstm"}


Result = tuple[PackedSequence, Tensor | tuple[Tensor, ...]]


def packed_network(network: nn.RNNBase, packed: PackedSequence) -> Result:
    """The result of ``network(packed)``, computed by :func:`by_directions` if that is faster.

    It is faster in training, and requires a PyTorch network without hooks.
    """

    def plain() -> Result:
        outputs, final = network(packed)
        return outputs, final

    if not torch.is_grad_enabled() or not _has_directions(network):
        return plain()
    tensors = packed.data, *network.parameters()
    return choose_loop(lambda: by_directions(network, packed), plain, *tensors)


def _has_directions(network: nn.RNNBase) -> bool:
    """Whether :func:`by_directions` computes the same as the network."""
    return (
        type(network) in (nn.RNN, nn.GRU, nn.LSTM)
        and network.mode in _CELLS
        and bool(network.bias)
        and not (network._forward_hooks or network._forward_pre_hooks)
    )


def by_directions(
    network: nn.RNNBase, packed: PackedSequence
) -> tuple[PackedSequence, tuple[Tensor, ...]]:
    """The result of ``network(packed)``, with one operator for each direction of each layer.

    The final states are a tuple for every kind of cell. The outputs of an LSTM with ``proj_size``
    are Pm, where P is its projection and m is its output before that. Its recurrent product is
    W(Pm) = (WP)m, so that the operator only needs m, and Pm is one product over all tokens.
    """
    sizes, data = packed.batch_sizes.tolist(), packed.data
    directions = ["", "_reverse"] if network.bidirectional else [""]
    finals = []
    for layer in range(network.num_layers):
        if layer and network.dropout and network.training:
            data = dropout(data, network.dropout)
        outputs = []
        for suffix in directions:
            names = ("weight_ih", "bias_ih", "weight_hh", "bias_hh")
            from_input, bias, recurrent, recurrent_bias = (
                getattr(network, f"{name}_l{layer}{suffix}") for name in names
            )
            projection = getattr(network, f"weight_hr_l{layer}{suffix}", None)
            if projection is not None:
                recurrent = recurrent @ projection
            known = F.linear(data, from_input, bias)
            cell = _CELLS[network.mode]
            states, last = direction(cell, sizes, bool(suffix), known, recurrent, recurrent_bias)
            final_states = list(last.unbind(0))
            if projection is not None:
                states = F.linear(states, projection)
                final_states[0] = F.linear(final_states[0], projection)
            outputs.append(states)
            finals.append(final_states)
        data = torch.cat(outputs, dim=1) if len(outputs) > 1 else outputs[0]
    back = packed.unsorted_indices
    final = (torch.stack(part) for part in zip(*finals, strict=True))
    return (
        PackedSequence(data, packed.batch_sizes, packed.sorted_indices, back),
        tuple(part if back is None else part.index_select(1, back) for part in final),
    )
