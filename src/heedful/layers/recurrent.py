"""Recurrent networks: a stack of cells that runs fused or step by step, an encoder, a bridge.

Shapes: B batch, N rows, S source positions, T target positions, E input width, H hidden width,
G gates (1 for tanh, 3 for GRU, 4 for LSTM), L layers.

Sources: Elman 1990 (tanh-RNN); Hochreiter and Schmidhuber 1997, Gers et al. 2000 (LSTM with a
forget gate); Cho et al. 2014, "Learning Phrase Representations using RNN Encoder–Decoder" (GRU).
"""

from collections.abc import Callable
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from heedful.kernels.recurrent_cell import Cell, LayerState, cell_step, next_state
from heedful.layers.dropout import Dropout
from heedful.layers.recurrent_packed import packed_network
from heedful.layers.stepwise import Stepwise

Hidden = tuple[LayerState, ...]
"""The states of all layers, the lowest first."""

_NETWORKS: dict[str, Callable[..., nn.RNNBase]] = {"rnn": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}


def recurrent_network(
    cell: Cell, input_dim: int, hidden: int, layers: int, *, bidirectional: bool, dropout: float
) -> nn.RNNBase:
    """PyTorch's network with this cell, batch first, with initialised weights.

    Input weights are Glorot uniform and recurrent weights orthogonal, separately for each gate;
    biases are zero, except for the LSTM's forget gate, which is initially open (bias 1).
    """
    network: nn.RNNBase = _NETWORKS[cell](
        input_dim,
        hidden,
        layers,
        batch_first=True,
        dropout=dropout if layers > 1 else 0.0,
        bidirectional=bidirectional,
    )
    for name, parameter in network.named_parameters():
        for gate in torch.split(parameter.detach(), hidden):
            if "bias" in name:
                nn.init.zeros_(gate)
            elif "weight_hh" in name:
                nn.init.orthogonal_(gate)
            else:
                nn.init.xavier_uniform_(gate)
        if cell == "lstm" and "bias_ih" in name:
            nn.init.ones_(parameter.detach()[hidden : 2 * hidden])
    return network


class RecurrentStack(nn.Module):
    """L layers in one direction, with two implementations on the same weights.

    :meth:`forward` runs a whole sequence in one fused call, if all inputs are known in advance;
    :meth:`steps` runs position by position, if an input depends on the previous step.
    """

    def __init__(
        self, cell: Cell, input_dim: int, hidden: int, layers: int, *, dropout: float
    ) -> None:
        super().__init__()
        self.cell, self.drop = cell, Dropout(dropout)
        self.network = recurrent_network(
            cell, input_dim, hidden, layers, bidirectional=False, dropout=dropout
        )

    def forward(self, inputs: Tensor, hidden: Hidden) -> tuple[Tensor, Hidden]:
        """Run ``inputs [B, T, E]``, starting from ``hidden``.

        Returns:
            The top layer's states ``[B, T, H]``, and all layers' states after the last input.
        """
        parts = [torch.stack(part) for part in zip(*hidden, strict=True)]  # each [L, B, H]
        kind = inputs.device.type
        if torch.is_autocast_enabled(kind):
            # oneDNN's LSTM needs weights and inputs of one type; autocast changes only weights.
            inputs = inputs.to(torch.get_autocast_dtype(kind))
        outputs, final = self.network(inputs, tuple(parts) if len(parts) > 1 else parts[0])
        after = final if isinstance(final, tuple) else (final,)
        return outputs, tuple(zip(*after, strict=True))

    def step(self, gates: Tensor, hidden: Hidden) -> Hidden:
        """All layers' states after one step.

        Args:
            gates: the input's contribution to the lowest layer's gates ``[B, G·H]``, with the bias.
            hidden: all layers' previous states.
        """
        return _layers(
            self.cell,
            gates,
            hidden,
            lambda layer, x: F.linear(self.drop(x), *self.weights("ih", layer)),
            lambda layer, h: F.linear(h, *self.weights("hh", layer)),
        )

    def steps(self, known: Tensor) -> "StackSteps":
        """The stack step by step, with one weight gradient for all steps.

        Args:
            known: the first part ``[B, T, E']`` of the input at all steps, which is multiplied by
                its weights at once; the rest of the input is passed at each step.
        """
        return StackSteps(self, known)

    def weights(self, kind: Literal["ih", "hh"], layer: int) -> tuple[Tensor, Tensor]:
        """Weight and bias of a layer's input ("ih") or of its previous state ("hh")."""
        weight: Tensor = getattr(self.network, f"weight_{kind}_l{layer}")
        bias: Tensor = getattr(self.network, f"bias_{kind}_l{layer}")
        return weight, bias


class StackSteps:
    """T sequential steps of a :class:`RecurrentStack`."""

    def __init__(self, stack: RecurrentStack, known: Tensor) -> None:
        rows, count, width = known.shape
        self.cell, self.drop = stack.cell, stack.drop
        weight, bias = stack.weights("ih", 0)
        gates = F.linear(known.transpose(0, 1), weight[:, :width], bias)
        self.late = Stepwise(weight[:, width:], gates)

        def constant(kind: Literal["ih", "hh"], layer: int) -> Stepwise:
            weight, bias = stack.weights(kind, layer)
            return Stepwise(weight, bias.expand(count, rows, -1))

        layers = range(stack.network.num_layers)
        self.upper = [constant("ih", layer) for layer in layers[1:]]
        self.recurrent = [constant("hh", layer) for layer in layers]

    def __call__(self, late: Tensor | None, hidden: Hidden) -> Hidden:
        """All layers' states after the next step.

        Args:
            late: the rest of the input ``[B, E - E']``; None if it is empty.
            hidden: all layers' previous states.
        """
        return _layers(
            self.cell,
            self.late(late),
            hidden,
            lambda layer, x: self.upper[layer - 1](self.drop(x)),
            lambda layer, h: self.recurrent[layer](h),
        )


def _layers(
    cell: Cell,
    gates: Tensor,
    hidden: Hidden,
    upper: Callable[[int, Tensor], Tensor],
    recurrent: Callable[[int, Tensor], Tensor],
) -> Hidden:
    """One step of all layers. The maps compute a layer's gates from the layer below and from the
    layer's previous state."""
    after: list[LayerState] = []
    for layer, before in enumerate(hidden):
        given = upper(layer, after[-1][0]) if layer else gates
        shares = given, recurrent(layer, before[0])
        now = next_state(cell, *shares, before)
        after.append(cell_step(cell, *shares, before) if now is None else now)
    return tuple(after)


class RecurrentEncoder(nn.Module):
    """Encodes a source in one or two directions. Padding has no influence.

    Attributes:
        output_dim: width of an annotation: H, or 2·H for two concatenated directions.
    """

    def __init__(
        self,
        cell: Cell,
        input_dim: int,
        hidden: int,
        layers: int,
        *,
        bidirectional: bool,
        dropout: float,
    ) -> None:
        super().__init__()
        self.layers, self.output_dim = layers, hidden * (2 if bidirectional else 1)
        self.network = recurrent_network(
            cell, input_dim, hidden, layers, bidirectional=bidirectional, dropout=dropout
        )

    def forward(self, embedded: Tensor, lengths: Tensor) -> tuple[Tensor, Hidden]:
        """Annotations and final states of ``embedded [B, S, E]`` with ``lengths [B]``, each >= 1.

        Returns:
            The top layer's states ``[B, S, output_dim]``, zero after the end of a row; and each
            layer's state after the last token (backward direction: the first token), the
            directions concatenated, ``[B, output_dim]``.
        """
        packed = pack_padded_sequence(
            embedded, lengths.cpu(), batch_first=True, enforce_sorted=False
        )
        outputs, final = packed_network(self.network, packed)
        annotations, _ = pad_packed_sequence(
            outputs, batch_first=True, total_length=embedded.shape[1]
        )
        parts = final if isinstance(final, tuple) else (final,)
        by_layer = [
            part.view(self.layers, -1, *part.shape[1:]).transpose(1, 2).flatten(2) for part in parts
        ]  # each [L, B, output_dim]
        return annotations, tuple(zip(*by_layer, strict=True))


class Bridge(nn.Module):
    """The decoder's initial state from the encoder's final state.

    If both have the same layers and widths, the state is passed unchanged (Sutskever et al. 2014).
    Otherwise each part of each layer is ``tanh(W h + b)`` (Bahdanau et al. 2015, appendix A.2.2,
    who use only the backward direction) of the same layer of the encoder, or of its top layer
    if the numbers of layers differ.
    """

    def __init__(
        self, cell: Cell, encoder_dim: int, encoder_layers: int, hidden: int, layers: int
    ) -> None:
        super().__init__()
        self.layers, self.same_layers = layers, encoder_layers == layers
        self.parts = 2 if cell == "lstm" else 1
        self.projections = nn.ModuleList()
        if encoder_dim != hidden or not self.same_layers:
            for _ in range(layers * self.parts):
                self.projections.append(glorot_linear(encoder_dim, hidden))

    def forward(self, final: Hidden) -> Hidden:
        """``L`` states ``[B, H]`` from the encoder's final states."""
        if not self.projections:
            return final
        sources = final if self.same_layers else (final[-1],) * self.layers
        wide = [part for layer in sources for part in layer]
        # Keep the encoder's precision: under autocast a product is less precise than the states.
        narrow = [
            torch.tanh(projection(part)).to(part.dtype)
            for projection, part in zip(self.projections, wide, strict=True)
        ]
        return tuple(
            tuple(narrow[first : first + self.parts]) for first in range(0, len(narrow), self.parts)
        )


class Maxout(nn.Module):
    """Maxout over pairs of a sum of linear maps: the deep output of Bahdanau et al. 2015.

    t̃ = Σ_j U_j x_j + b, t_i = max(t̃_{2i-1}, t̃_{2i}) (appendix A.2.2; Cho et al. 2014, appendix
    A.1.2). The maps are separate, so that a part that is constant over the steps is mapped once.
    """

    def __init__(self, input_dims: list[int], output_dim: int) -> None:
        super().__init__()
        self.maps = nn.ModuleList(
            glorot_linear(dim, 2 * output_dim, bias=not place)
            for place, dim in enumerate(input_dims)
        )

    def forward(self, *parts: Tensor, known: Tensor | None = None) -> Tensor:
        """``[.., output_dim]`` from parts ``[.., input_dims[j]]``, which broadcast.

        Args:
            parts: the inputs of the first maps.
            known: the sum of the other maps' outputs ``[.., 2·output_dim]``; None if ``parts`` has
                the inputs of all maps.
        """
        total = self.maps[0](parts[0])
        for linear, part in zip(self.maps[1 : len(parts)], parts[1:], strict=True):
            total = total + linear(part)
        if known is not None:
            total = total + known
        pairs: Tensor = total.view(*total.shape[:-1], -1, 2)
        return pairs.amax(-1)


def glorot_linear(input_dim: int, output_dim: int, *, bias: bool = True) -> nn.Linear:
    """A linear map with Glorot uniform weights and a zero bias."""
    linear = nn.Linear(input_dim, output_dim, bias=bias)
    nn.init.xavier_uniform_(linear.weight)
    if bias:
        nn.init.zeros_(linear.bias)
    return linear
