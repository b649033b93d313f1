"""The base class of encoders of single texts or pairs, and heads for classification and tagging.

Shapes: B batch, L tokens, D width of a token's vector, P width of a text's vector, C classes.
"""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn

from heedful.basics.errors import UserError
from heedful.basics.symbols import BEGIN, END, PAD, UNKNOWN
from heedful.layers.dropout import Dropout
from heedful.layers.max_norm import output_linear


class Sequences(NamedTuple):
    """A batch of texts, or of pairs of texts.

    A row is ``BEGIN s END`` or ``BEGIN s END s′ END`` (``[CLS] S [SEP] S′ [SEP]``), then PAD.
    """

    tokens: Tensor
    """Integers ``[B, L]``."""
    lengths: Tensor
    """Integers ``[B]``: tokens of each row, BEGIN and the ENDs included."""
    segments: Tensor
    """Integers ``[B, L]``: 0 for ``BEGIN s END`` and for padding, 1 for ``s′ END``."""


class Encoded(NamedTuple):
    """The output of an encoder."""

    states: Tensor | None
    """A vector for each token ``[B, L, D]``; None if the model has none."""
    pooled: Tensor | None
    """A vector for each row ``[B, P]``; None if the model has none."""


class TextEncoder(nn.Module):
    """Base of encoders of texts.

    A subclass sets ``max_length``, ``dim`` and ``pooled_dim`` and implements :meth:`encode` and, if
    it has attention, :meth:`attention_axes`.
    """

    max_length: int
    """Longest row in tokens, BEGIN and the ENDs included."""
    dim: int | None
    """Width of ``Encoded.states``; None if there are none."""
    pooled_dim: int | None
    """Width of ``Encoded.pooled``; None if there is none."""
    needs_pairs: bool = False
    """Whether it reads pairs of texts only."""
    fresh_at_start: tuple[str, ...] = ()
    """Beginnings of the names of parameters that a run it starts from may not have."""
    span_widths: tuple[int, int, int] | None = None
    """How many components of a token's state are for both boundaries of an answer, for starts only
    and for ends only (:class:`heedful.models.span_layer.SpanLayer`); None: all for both."""
    pooled_from: int = 0
    """Index of the token whose state ``pooled`` is computed from, if it is one; −1 is the last."""

    def encode(self, batch: Sequences) -> Encoded:
        """The vectors of a batch."""
        raise NotImplementedError

    def forward(self, batch: Sequences) -> Encoded:
        """As :meth:`encode`."""
        return self.encode(batch)

    def packed_states(self, tokens: Tensor, documents: Tensor) -> Tensor:
        """The states ``[B, L, D]`` of rows of several texts, each read as if it were alone.

        Args:
            tokens: ``[B, L]``; each text has its BEGIN and END.
            documents: integers ``[B, L]``, the number of the text of each token.

        Raises:
            UserError: the model cannot do this.
        """
        raise UserError(
            f"{type(self).__name__} reads a row as one text; with windows = 'packed', the model "
            "and its teacher must be BERTs"
        )

    def states_to_fill(self, batch: Sequences, places: Tensor) -> Tensor:
        """The states ``[M, D]`` from which masked tokens are predicted.

        Args:
            batch: texts with masked tokens.
            places: row and column of each masked token ``[M, 2]``, in order.

        Raises:
            ValueError: the model has no states of tokens.
        """
        states = self.encode(batch).states
        if states is None:
            raise ValueError("this encoder gives tokens no vectors of their own")
        return states[places[:, 0], places[:, 1]]

    @property
    def embedding(self) -> nn.Embedding:
        """The token embedding ``[V, E]``, into which pre-trained word vectors are loaded.

        By default, the first embedding of the model.

        Raises:
            TypeError: the model has no embedding.
        """
        return first_embedding(self)

    @property
    def vector_tables(self) -> list[nn.Embedding]:
        """All tables that pre-trained word vectors are loaded into."""
        return [self.embedding]

    def attention_axes(self) -> Mapping[str, tuple[str, ...]]:
        """Attention module name → the axes of its queries and its keys.

        If a module is called several times with the same queries, a third axis is that of its
        calls. "text" is the row's tokens, "hops" the hops of a pooling (as many as its weights have
        rows), "first" and "second" the two texts of a pair, without BEGIN and ENDs. Default: empty.
        """
        return {}

    def axis_labels(self) -> Mapping[str, list[str]]:
        """Axis → the labels of its positions, for axes that an input does not determine."""
        return {}

    def depth(self, name: str) -> int:
        """The depth of the parameter ``name``: 0 for embeddings, 1 for the first layer above.

        By default, in the order of the model's parts; see :func:`depth_of_part`.
        """
        return depth_of_part(self, name)

    @property
    def depths(self) -> int:
        """The number of different depths, which is the depth of heads."""
        return 1 + max(self.depth(name) for name, _ in self.named_parameters())


class Classifier(nn.Module):
    """A linear layer over a text's vector (Devlin et al. 2019, section 4.1)."""

    def __init__(
        self, width: int, classes: int, dropout: float, max_norm: float | None = None
    ) -> None:
        super().__init__()
        self.dropout = Dropout(dropout)
        self.output = output_linear(width, classes, max_norm)
        nn.init.normal_(self.output.weight, std=0.02)
        nn.init.zeros_(self.output.bias)

    def forward(self, encoded: Encoded) -> Tensor:
        """Logits ``[B, C]``."""
        if encoded.pooled is None:
            raise ValueError("this encoder returns no pooled vector for a text")
        result: Tensor = self.output(self.dropout(encoded.pooled))
        return result


class Tagger(nn.Module):
    """A linear layer over each token's vector."""

    def __init__(
        self, width: int, tags: int, dropout: float, max_norm: float | None = None
    ) -> None:
        super().__init__()
        self.dropout = Dropout(dropout)
        self.output = output_linear(width, tags, max_norm)
        nn.init.normal_(self.output.weight, std=0.02)
        nn.init.zeros_(self.output.bias)

    def forward(self, encoded: Encoded) -> Tensor:
        """Logits ``[B, L, C]``."""
        if encoded.states is None:
            raise ValueError("this encoder returns no states of tokens")
        result: Tensor = self.output(self.dropout(encoded.states))
        return result


class ChainTagger(Tagger):
    """As :class:`Tagger`, with a score for each pair of tags of neighbouring words.

    The logits are the emissions of a conditional random field
    (:mod:`heedful.layers.linear_chain`) over the first tokens of words.
    """

    def __init__(
        self, width: int, tags: int, dropout: float, max_norm: float | None = None
    ) -> None:
        super().__init__(width, tags, dropout, max_norm)
        self.transitions = nn.Parameter(torch.zeros(tags, tags))
        """``[C, C]``, from the row's tag to the column's."""


class HeadedEncoder(nn.Module):
    """One encoder with a head for each task; parameters ``encoder.…``, ``heads.…``.

    Args:
        encoder: the encoder.
        heads: name of the task → head; a name contains no dot.
    """

    generates = False

    def __init__(self, encoder: TextEncoder, heads: Mapping[str, nn.Module]) -> None:
        super().__init__()
        self.encoder = encoder
        self.heads = nn.ModuleDict(dict(heads))
        self.max_length = encoder.max_length

    def attention_axes(self) -> dict[str, tuple[str, ...]]:
        """The axes of the encoder, with module names as in this module."""
        own = self.encoder.attention_axes()
        return {f"encoder.{name}": axes for name, axes in own.items()}

    def axis_labels(self) -> Mapping[str, list[str]]:
        """The labels of the encoder's own axes."""
        return self.encoder.axis_labels()

    def depth(self, name: str) -> int:
        """The depth of a parameter of this module, in the encoder or in a head."""
        inside = name.removeprefix("encoder.")
        return self.encoder.depths if inside == name else self.encoder.depth(inside)

    def read_sample(self, rows: int, length: int) -> None:
        """Run the model on arbitrary texts, or pairs if required, to measure its speed."""
        second = [[UNKNOWN] * (length - 1)] * rows if self.encoder.needs_pairs else None
        tokens, lengths, segments = sequences_of([[UNKNOWN] * (length - 2)] * rows, second)
        longest = min(self.max_length, tokens.shape[1])
        cut = tokens[:, :longest], lengths.clamp(max=longest), segments[:, :longest]
        self.encoder(Sequences(*cut))


def first_embedding(model: nn.Module) -> nn.Embedding:
    """The first embedding of a model.

    Raises:
        TypeError: the model has no embedding.
    """
    for part in model.modules():
        if isinstance(part, nn.Embedding):
            return part
    raise TypeError(f"{type(model).__name__} has no nn.Embedding; override the property embedding")


def depth_of_part(model: nn.Module, name: str) -> int:
    """The number of the part (attribute) to which a parameter belongs, in the order of creation.

    Parts without parameters are not counted. A parameter of the model itself belongs to the last.
    """
    parts = [own for own, part in model.named_children() if any(True for _ in part.parameters())]
    first = name.partition(".")[0]
    return parts.index(first) if first in parts else max(0, len(parts) - 1)


def sequences_of(first: list[list[int]], second: list[list[int]] | None = None) -> Sequences:
    """Texts as one batch.

    Args:
        first: tokens of each text, without BEGIN and END.
        second: tokens of the second text of each pair.

    Example:
        >>> sequences_of([[7, 8], [9]], [[5], [6]]).tokens
        tensor([[2, 7, 8, 3, 5, 3],
                [2, 9, 3, 6, 3, 0]])
    """
    rows = [[BEGIN, *text, END] for text in first]
    lengths = [len(row) for row in rows]
    begins = list(lengths)
    if second is not None:
        rows = [[*row, *text, END] for row, text in zip(rows, second, strict=True)]
        lengths = [len(row) for row in rows]
    width = max(lengths, default=0)
    tokens = torch.tensor([row + [PAD] * (width - len(row)) for row in rows], dtype=torch.long)
    of_row, starts = torch.tensor(lengths), torch.tensor(begins)
    places = torch.arange(width)
    segments = (places >= starts[:, None]) & (places < of_row[:, None])
    return Sequences(tokens.reshape(len(rows), width), of_row, segments.long())
