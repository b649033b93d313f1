"""The base class of sequence-to-sequence models.

Shapes: B batch, N rows of search, S source tokens, T target tokens, D width, V vocabulary.
"""

from typing import Any, NamedTuple, Protocol, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heedful.basics.symbols import END, UNKNOWN
from heedful.kernels.cross_entropy import cross_entropy


class Source(NamedTuple):
    """A batch of source sequences."""

    tokens: Tensor
    """Integers ``[B, S]``: in each row the tokens, END, then PAD."""
    lengths: Tensor
    """Integers ``[B]``: tokens of each row, END included."""


class AlignmentSource(NamedTuple):
    """The attention module and rows from which a word alignment is read."""

    module: str
    """Name of the attention module in ``model.named_modules()``."""
    heads: tuple[int, ...] | None
    """The heads whose weights are averaged; None for all."""
    shift: int
    """Row of a target token: 0, where it is predicted; 1, the next row, where it is the input."""


class State(Protocol):
    """The state of a model between decoding steps, for N rows."""

    def select(self, rows: Tensor) -> Self:
        """The state of ``rows [M]``, in this order; rows can be repeated or omitted."""
        ...


class TensorState(dict[str, Tensor]):
    """A state that consists of named tensors ``[N, ..]``.

    Example:
        >>> import torch
        >>> TensorState(hidden=torch.eye(2)).select(torch.tensor([1, 1]))["hidden"]
        tensor([[0., 1.],
                [0., 1.]])
    """

    def select(self, rows: Tensor) -> "TensorState":
        """The state of ``rows [M]``, in this order."""
        return TensorState({name: part.index_select(0, rows) for name, part in self.items()})


class PairModel(nn.Module):
    """Base of sequence-to-sequence models, which are decodables.

    A subclass sets ``max_length`` and implements :meth:`states`, :attr:`output_table`,
    :meth:`start`, :meth:`step` and, if it has attention, :meth:`attention_axes`.
    """

    max_length: int
    """Longest sequence in tokens, END included, on either side."""
    generates: bool = True
    """Whether it generates outputs; false if it only aligns given ones."""

    def __init__(self) -> None:
        super().__init__()
        self.projection: nn.Module | None = None
        """Computes the logits instead of the table and the bias, in a quantised copy."""

    def states(self, source: Source, target_in: Tensor) -> Tensor:
        """The states ``[B, T, D]`` that predict each next token, given ``target_in [B, T]``."""
        raise NotImplementedError

    @property
    def output_table(self) -> Tensor:
        """The matrix ``[V, D]`` whose products with a state are the next token's logits."""
        raise NotImplementedError

    @property
    def output_bias(self) -> Tensor | None:
        """The bias of the logits ``[V]``, or None."""
        return None

    def logits(self, states: Tensor) -> Tensor:
        """Logits ``[.., V]`` of the next token from ``states [.., D]``."""
        if self.projection is not None:
            logits: Tensor = self.projection(states)
            return logits
        return F.linear(states, self.output_table, self.output_bias)

    def layer_states(self) -> list[str]:
        """The modules whose outputs ``[B, T, D]`` are the states after each layer, the first one
        first; empty if the states of a layer cannot be read as those of the last one."""
        return []

    def read_layer(self, states: Tensor) -> Tensor:
        """Logits ``[.., V]`` of the next token from the ``states [.., D]`` of any layer."""
        return self.logits(states)

    def teacher_force(self, source: Any, target_in: Tensor) -> Tensor:
        """Logits ``[B, T, V]`` of each next token, given ``target_in [B, T]``."""
        return self.logits(self.states(source, target_in))

    def losses(
        self, source: Source, target_in: Tensor, labels: Tensor, real: Tensor, smoothing: float
    ) -> tuple[Tensor, Tensor]:
        """The summed cross-entropy with label smoothing, and that of each label without it.

        Args:
            source: the sources.
            target_in: BEGIN and the target's tokens ``[B, T]``.
            labels: the target's tokens and END ``[B, T]``.
            real: which labels count, booleans ``[B, T]``.
            smoothing: ε in [0, 1).

        Returns:
            The sum in nats; and ``−log p`` of each label that counts ``[N]``, detached.
        """
        # Logits are computed for real tokens only, because they are most of the work.
        states = self.states(source, target_in)[real]
        return cross_entropy(states, self.output_table, labels[real], smoothing, self.output_bias)

    def start(self, source: Source) -> State:
        """The state of decoding before the first step, one row per source."""
        raise NotImplementedError

    def step(self, tokens: Tensor, state: Any) -> tuple[Tensor, State]:
        """Logits ``[N, V]`` after the last ``tokens [N]``, and the state after them."""
        raise NotImplementedError

    def sample(self, rows: int, length: int) -> Source:
        """Sources of arbitrary tokens, to measure the speed of :meth:`start` and :meth:`step`."""
        return Source(sample_rows(rows, length), torch.full((rows,), length))

    @property
    def alignment(self) -> AlignmentSource | None:
        """Where a word alignment is read; None for a model without cross-attention.

        By default, the last module that attends from the target to the source, in the row that
        predicts a token.
        """
        axes = self.attention_axes()
        found = [module for module, own in axes.items() if own == ("target", "source")]
        return AlignmentSource(found[-1], heads=None, shift=0) if found else None

    @property
    def link_threshold(self) -> float | None:
        """The weight above which a link is made, if weights are link probabilities; else None."""
        return None

    def attention_axes(self) -> dict[str, tuple[str, str]]:
        """Attention module name → the axes ("source", "target") of its queries and its keys.

        Default: empty.
        """
        return {}


def sample_rows(rows: int, length: int) -> Tensor:
    """Arbitrary tokens ``[rows, length]`` with an END in each row, to measure speed."""
    tokens = torch.full((rows, length), UNKNOWN)
    tokens[:, -1] = END
    return tokens


def require_one_vocabulary(tied: str, source: int, target: int) -> None:
    """Raise ValueError if both sides share embeddings, but the vocabularies differ in size."""
    if tied in ("all", "inputs") and source != target:
        raise ValueError(
            f"model.tied_embeddings = '{tied}' requires one vocabulary for both sides "
            "(tokeniser.joint = true); use model.tied_embeddings = 'output' or 'none'"
        )
