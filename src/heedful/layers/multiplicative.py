"""Recurrent cells whose weights depend on the input: the multiplicative LSTM, an LSTM whose weights
a smaller LSTM scales at each step (HyperLSTM), and matrices that the input switches.

Shapes: B batch, T steps, E width of the inputs, H width of a state, U width of the smaller LSTM, Z
width of its embeddings, L layers.
"""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, cast

import torch
from torch import Tensor, nn

from heedful.kernels.recurrent_cell import LayerState
from heedful.layers.dropout import Dropout
from heedful.layers.recurrent import Hidden

MultiplicativeCell = Literal["mlstm", "hyper-lstm", "switched"]
GATES = 4
"""Input gate, forget gate, candidate, output gate."""


class HyperSizes(NamedTuple):
    """The sizes of the smaller LSTM."""

    hidden: int
    """U"""
    embedding: int
    """Z"""
    layer_norm: bool = True


class Layer(nn.Module):
    """Base of a layer of multiplicative cells."""

    widths: Sequence[int]
    """The widths of the parts of its state; the first one is that of its output."""

    @abstractmethod
    def prepare(self, inputs: Tensor) -> Sequence[Tensor]:
        """What a step needs of its input, for all steps ``[T, B, E]`` at once: ``[T, B, …]``."""

    @abstractmethod
    def step(self, prepared: Sequence[Tensor], state: LayerState) -> LayerState:
        """The next state."""


def _gated(i: Tensor, f: Tensor, g: Tensor, cell: Tensor) -> Tensor:
    """``σ(f) c + σ(i) tanh(g)``"""
    return torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(g)


def _orthogonal(gates: Tensor, width: int) -> None:
    for gate in gates.detach().split(width):
        nn.init.orthogonal_(gate)


class MultiplicativeLayer(Layer):
    """An LSTM whose recurrent weights depend on the input, by a factored product:

        m = (W_mx x) ∘ (W_mh h)     i, f, g, o = W_x x + W_m m + b
        c ← σ(f) c + σ(i) tanh(g)     h = σ(o) tanh(c)

    Args:
        inputs: E.
        hidden: H.

    Source: Krause, Lu, Murray, Renals 2017, "Multiplicative LSTM for sequence modelling", section
    3.
    """

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.widths = (hidden, hidden)
        self.factor_input = nn.Linear(inputs, hidden, bias=False)
        self.factor_state = nn.Linear(hidden, hidden, bias=False)
        self.from_input = nn.Linear(inputs, GATES * hidden)
        self.from_factor = nn.Linear(hidden, GATES * hidden, bias=False)
        _orthogonal(self.factor_state.weight, hidden)
        _orthogonal(self.from_factor.weight, hidden)
        nn.init.xavier_uniform_(self.factor_input.weight, gain=3.0)  # of embeddings of size ~1/√E
        _open_forget_gate(self.from_input.bias, hidden)

    def prepare(self, inputs: Tensor) -> Sequence[Tensor]:
        return self.factor_input(inputs), self.from_input(inputs)

    def step(self, prepared: Sequence[Tensor], state: LayerState) -> LayerState:
        factor, gates = prepared
        h, c = state
        i, f, g, o = (gates + self.from_factor(factor * self.factor_state(h))).chunk(GATES, -1)
        c = _gated(i, f, g, c)
        return torch.sigmoid(o) * torch.tanh(c), c


def _open_forget_gate(bias: Tensor, hidden: int) -> None:
    with torch.no_grad():
        bias.zero_()
        bias[hidden : 2 * hidden] = 1


class HyperLayer(Layer):
    """An LSTM whose gates are scaled by a smaller LSTM that reads its state and its input:

        ĥ, ĉ = LSTM([h; x], ĥ, ĉ)     z = W_z ĥ + b_z, for each gate y and for h, x and the bias
        y = LN(d_h ∘ (W_h h) + d_x ∘ (W_x x) + b(z_b))     d_h = D_h z_h     d_x = D_x z_x
        c ← σ(f) c + σ(i) tanh(g)     h = σ(o) tanh(LN(c))

    Args:
        inputs: E.
        hidden: H.
        sizes: of the smaller LSTM.

    Source: Ha, Dai, Le 2016, "HyperNetworks", section 3.2 and appendix A.2.2; the gates read the
    smaller LSTM's new state. At first all scales are 0.1, as there.
    """

    def __init__(self, inputs: int, hidden: int, sizes: HyperSizes) -> None:
        super().__init__()
        small, width = sizes.hidden, sizes.embedding
        self.hidden, self.embedding = hidden, width
        self.widths = (hidden, hidden, small, small)
        self.from_input = nn.Linear(inputs, GATES * hidden, bias=False)
        self.from_state = nn.Linear(hidden, GATES * hidden, bias=False)
        self.small_input = nn.Linear(inputs, GATES * small)
        self.small_state = nn.Linear(hidden + small, GATES * small, bias=False)
        self.embed = nn.Linear(small, 3 * GATES * width)  # for h, x and the bias; for each gate
        self.scale = nn.Parameter(torch.full((3, GATES, width, hidden), 0.1 / width))
        self.bias = nn.Parameter(torch.zeros(GATES * hidden))
        count = GATES + 1 if sizes.layer_norm else 0
        self.norms = nn.ModuleList(nn.LayerNorm(hidden) for _ in range(count))
        self._initialise(small)

    def _initialise(self, small: int) -> None:
        _orthogonal(self.from_state.weight, self.hidden)
        _orthogonal(self.small_state.weight, small)
        nn.init.zeros_(self.embed.weight)
        with torch.no_grad():
            ones = torch.ones(3, GATES * self.embedding)
            ones[2] = 0  # the bias has no constant part here
            self.embed.bias.copy_(ones.flatten())
            self.scale[2].zero_()
        _open_forget_gate(self.small_input.bias, small)
        _open_forget_gate(self.bias, self.hidden)

    def prepare(self, inputs: Tensor) -> Sequence[Tensor]:
        return self.from_input(inputs), self.small_input(inputs)

    def step(self, prepared: Sequence[Tensor], state: LayerState) -> LayerState:
        of_input, small_gates = prepared
        h, c, small_h, small_c = state
        small = small_gates + self.small_state(torch.cat([h, small_h], -1))
        i, f, g, o = small.chunk(GATES, -1)
        small_c = _gated(i, f, g, small_c)
        small_h = torch.sigmoid(o) * torch.tanh(small_c)
        z = self.embed(small_h).view(len(h), 3, GATES, self.embedding)
        by_state, by_input, shift = torch.einsum("bkgz,kgzh->kbgh", z, self.scale).flatten(2)
        gates = by_state * self.from_state(h) + by_input * of_input + shift + self.bias
        i, f, g, o = (self._norm(n, one) for n, one in enumerate(gates.chunk(GATES, -1)))
        c = _gated(i, f, g, c)
        return torch.sigmoid(o) * torch.tanh(self._norm(GATES, c)), c, small_h, small_c

    def _norm(self, place: int, x: Tensor) -> Tensor:
        normed: Tensor = self.norms[place](x) if len(self.norms) else x
        return normed


class SwitchedLayer(Layer):
    """An affine map of the state, chosen by the input symbol, without a nonlinearity:

        h ← W_x h + b_x

    The vector of a symbol x holds W_x, row by row, and b_x. See :func:`switched_embedding`.

    Args:
        inputs: H (H + 1).
        hidden: H.

    Raises:
        ValueError: the inputs are not as wide as a matrix and a vector.

    Source: Foerster, Gilmer, Sohl-Dickstein, Chorowski, Sussillo 2017, "Input Switched Affine
    Networks", equation 1.
    """

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        if inputs != hidden * (hidden + 1):
            raise ValueError(
                f"inputs {inputs}: a switched layer with states of width {hidden} reads inputs of "
                f"width {hidden * (hidden + 1)}"
            )
        self.widths, self.hidden = (hidden,), hidden

    def prepare(self, inputs: Tensor) -> Sequence[Tensor]:
        matrices, biases = inputs.split([self.hidden**2, self.hidden], -1)
        return matrices.unflatten(-1, (self.hidden, self.hidden)), biases.unsqueeze(-1)

    def step(self, prepared: Sequence[Tensor], state: LayerState) -> LayerState:
        matrix, bias = prepared
        return (torch.baddbmm(bias, matrix, state[0].unsqueeze(-1)).squeeze(-1),)


def switched_embedding(vocabulary: int, hidden: int) -> nn.Embedding:
    """A table of matrices and vectors, initially orthogonal matrices and small vectors."""
    table = nn.Embedding(vocabulary, hidden * (hidden + 1))
    matrices = table.weight.detach()[:, : hidden**2]
    for row in matrices:
        row.copy_(nn.init.orthogonal_(row.new_empty(hidden, hidden)).flatten())
    nn.init.normal_(table.weight.detach()[:, hidden**2 :], std=hidden**-0.5)
    return table


def _layer(cell: MultiplicativeCell, inputs: int, hidden: int, sizes: HyperSizes) -> Layer:
    if cell == "hyper-lstm":
        return HyperLayer(inputs, hidden, sizes)
    return (MultiplicativeLayer if cell == "mlstm" else SwitchedLayer)(inputs, hidden)


class MultiplicativeStack(nn.Module):
    """L layers of one of these cells, step by step; used as a
    :class:`~heedful.layers.recurrent.RecurrentStack`.

    Args:
        cell: the cell of all layers.
        inputs: E.
        hidden: H.
        layers: L.
        dropout: between layers.
        hyper: the sizes of the smaller LSTM of ``hyper-lstm``.

    Example:
        >>> stack = MultiplicativeStack("mlstm", 3, 5, 2, dropout=0.0)
        >>> outputs, after = stack(torch.zeros(1, 4, 3), stack.fresh(torch.zeros(1)))
        >>> outputs.shape
        torch.Size([1, 4, 5])
    """

    def __init__(
        self,
        cell: MultiplicativeCell,
        inputs: int,
        hidden: int,
        layers: int,
        *,
        dropout: float,
        hyper: HyperSizes | None = None,
    ) -> None:
        super().__init__()
        self.drop, sizes = Dropout(dropout), hyper or HyperSizes(hidden, hidden)
        widths = [inputs, *[hidden] * (layers - 1)]
        self.layers = nn.ModuleList(_layer(cell, width, hidden, sizes) for width in widths)
        self.widths = [tuple(cast(Layer, layer).widths) for layer in self.layers]

    def fresh(self, rows: Tensor) -> Hidden:
        """States of zeros, for as many rows as ``rows`` has, of its type."""
        return tuple(
            tuple(rows.new_zeros(len(rows), width) for width in widths) for widths in self.widths
        )

    def forward(self, inputs: Tensor, hidden: Hidden) -> tuple[Tensor, Hidden]:
        """Run ``inputs [B, T, E]``, starting from ``hidden``.

        Returns:
            The top layer's states ``[B, T, H]``, and all layers' states after the last input.
        """
        x, after = inputs.transpose(0, 1), []
        for number, state in enumerate(hidden):
            layer: Any = self.layers[number]
            prepared = layer.prepare(self.drop(x) if number else x)
            outputs = []
            for own in zip(*(part.unbind(0) for part in prepared), strict=True):
                state = layer.step(own, state)
                outputs.append(state[0])
            x = torch.stack(outputs)
            after.append(state)
        return x.transpose(0, 1), tuple(after)
