"""The base class of language models, which predict each next token of a stream of text.

END begins, separates and ends documents; BEGIN, which search passes, is replaced by END.
Shapes: B batch, N rows of search, T tokens, D width, V vocabulary.
"""

from collections.abc import Mapping
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from heedful.basics.errors import UserError
from heedful.basics.symbols import BEGIN, END
from heedful.models.encoders import depth_of_part, first_embedding
from heedful.models.pairs import State, sample_rows


class LanguageModel(nn.Module):
    """Base of language models."""

    max_length: int
    """Longest context in tokens, the first END included."""
    generates: bool = True
    """Language models write texts; encoders and word aligners only read them."""

    def __init__(self) -> None:
        super().__init__()
        self.projection: nn.Module | None = None
        """Computes the logits instead of the table and the bias, in a quantised copy."""

    def states(self, tokens: Tensor) -> Tensor:
        """The states ``[B, T, D]`` that predict each next token, given ``tokens [B, T]``."""
        raise NotImplementedError

    def packed_states(self, tokens: Tensor, documents: Tensor) -> Tensor:
        """As :meth:`states`, for rows of several documents, each read as if it were alone.

        Args:
            tokens: ``[B, T]``; the tokens of a document are adjacent.
            documents: integers ``[B, T]``, the number of the document of each token.

        Raises:
            UserError: the model cannot do this.
        """
        raise UserError(
            f"{type(self).__name__} reads a row as one text; with windows = 'packed', the model "
            "and its teacher must be GPTs"
        )

    @property
    def embedding(self) -> nn.Embedding:
        """The token embedding; by default, the first embedding of the model."""
        return first_embedding(self)

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

    def start(self, prompts: Tensor) -> State:
        """The state after all but the last token of ``prompts [B, T]``, T at least 1.

        All prompts have the same length. Pass their last tokens to the first :meth:`step`.
        """
        raise NotImplementedError

    def step(self, tokens: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Logits ``[N, V]`` after the last ``tokens [N]``, and the state after them."""
        raise NotImplementedError

    def sample(self, rows: int, length: int) -> Tensor:
        """Prompts of arbitrary tokens, to measure the speed of :meth:`start` and :meth:`step`."""
        return sample_rows(rows, length)

    def attention_axes(self) -> Mapping[str, tuple[str, ...]]:
        """Attention module name → the axes of its queries and its keys: all are "text".

        If a module is called several times for the same tokens, a third axis is that of its calls.

        Empty by default.
        """
        return {}

    def depth(self, name: str) -> int:
        """The depth of the parameter ``name``: 0 for embeddings, 1 for the first layer above.

        By default, in the order of the model's parts; see :func:`depth_of_part`.
        """
        return depth_of_part(self, name)


def boundary(tokens: Tensor) -> Tensor:
    """``tokens`` with each BEGIN, which language models do not have, replaced by END."""
    return tokens.masked_fill(tokens == BEGIN, END)
