"""Circuits of a GPT, and what its heads attend to.

Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits": the direct path from the
embedding to the output (section "Zero-layer Transformers"), the value–output circuit of a head and
the eigenvalues of its copying ("Detecting Copying Behavior"). Olsson et al. 2022, "In-context
Learning and Induction Heads": prefix matching.
Norms are folded as in Elhage et al.: the last norm's gain and centring belong to the output matrix.
Its division is left out, so that a circuit's logits are known up to one positive factor for each
position.
Shapes: V symbols, D width, E width of a head, B texts, H heads, T tokens.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from heedful.attention import MultiHeadAttention
from heedful.layers.transformer import EncoderLayer
from heedful.models.gpt import Gpt

_ROUNDING = 1e-9
"""Eigenvalues below this share of the matrices' norms are rounding errors."""


class ValueOutput(NamedTuple):
    """The value–output circuit of a head, ``write @ read`` ``[V, V]``, of rank E."""

    write: Tensor
    """``W_U W_O`` ``[V, E]``: from the head's context to logits."""
    read: Tensor
    """``W_V N(W_E)`` ``[E, V]``: from each symbol to the head's value."""

    @property
    def matrix(self) -> Tensor:
        """``[V, V]``: column t has the logits that attention of weight 1 to symbol t adds."""
        return self.write @ self.read


def readout(model: Gpt) -> Tensor:
    """The output matrix with the gain and the centring of the last norm, ``[V, D]``."""
    table, norm = model.output_table.detach().cpu().double(), model.norm
    if isinstance(norm, nn.Identity):
        return table
    gain = norm.weight
    assert isinstance(gain, Tensor)
    table = table * gain.detach().cpu().double()
    return table - table.mean(1, keepdim=True) if isinstance(norm, nn.LayerNorm) else table


def direct_path(model: Gpt) -> Tensor:
    """``W_U W_E`` ``[V, V]``: row t has the logits that follow symbol t without any layer."""
    return model.embedding.weight.detach().cpu().double() @ readout(model).T


def value_output(model: Gpt, layer: int, head: int) -> ValueOutput:
    """The value–output circuit of a head for symbols that no layer before it has changed.

    Raises:
        ValueError: the model has norms after its sublayers, or its heads share keys.
    """
    block = model.layers[layer]
    assert isinstance(block, EncoderLayer)
    attention = block.self_attention
    if not model.settings.pre_norm or not isinstance(attention, MultiHeadAttention):
        raise ValueError("circuits need norms before sublayers and standard attention")
    values, output = attention.value_projection, attention.output_projection
    if values is None or output is None or attention.key_heads != attention.heads:
        raise ValueError("circuits need heads with values of their own and a joint projection")
    rows = slice(head * attention.head_dim, (head + 1) * attention.head_dim)
    with torch.no_grad():
        normed = block.around_self.norm(model.embedding.weight).cpu().double()
    read = values.weight.detach().cpu().double()[rows] @ normed.T
    return ValueOutput(readout(model) @ output.weight.detach().cpu().double()[:, rows], read)


def copying_score(circuit: ValueOutput, symbols: Tensor | None = None) -> float:
    """``Σ λ / Σ |λ|`` over the eigenvalues of a circuit, in [−1, 1]; 1 if all copy.

    Logits are taken relative to their mean over the symbols, because softmax ignores what all have
    in common. A circuit that favours no symbol has score 0.

    Args:
        circuit: of a head.
        symbols: the symbols that count; all by default.

    Source: Elhage et al. 2021, "Summarizing OV/QK Matrices".

    Example:
        >>> round(copying_score(ValueOutput(torch.eye(4), torch.eye(4))), 4)
        1.0
    """
    write, read = circuit if symbols is None else (circuit.write[symbols], circuit.read[:, symbols])
    centred = write - write.mean(0)
    # The matrix [E, E] has the eigenvalues of [V, V] that are not 0.
    values = torch.linalg.eigvals(read @ centred)
    total = float(values.abs().sum())
    if total <= _ROUNDING * float(write.norm() * read.norm()):
        return 0.0
    return float(values.real.sum()) / total


def prefix_matching(weights: Tensor, period: int) -> Tensor:
    """The mean weight ``[.., H]`` of the token after the previous occurrence of the query's token.

    Args:
        weights: ``[.., H, T, T]`` for texts of END, ``period`` different words, and those words
            again, T = 2 · period + 1.
        period: number of words that are repeated.

    Source: Olsson et al. 2022, "Head Activation Evaluators".

    Example:
        >>> weights = torch.zeros(1, 5, 5)  # END a b a b
        >>> weights[0, 3, 2] = weights[0, 4, 3] = 1
        >>> prefix_matching(weights, 2).tolist()
        [1.0]
    """
    queries = torch.arange(period + 1, 2 * period + 1)
    return weights[..., queries, queries - period + 1].mean(-1)


def previous_token(weights: Tensor) -> Tensor:
    """The mean weight ``[.., H]`` of the previous token, without the first two queries.

    Args:
        weights: ``[.., H, T, T]``.
    """
    queries = torch.arange(2, weights.shape[-1])
    return weights[..., queries, queries - 1].mean(-1)
