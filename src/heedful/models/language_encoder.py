"""A language model as an encoder: a text's vector is the state after its last token.

Radford et al. 2018, "Improving Language Understanding by Generative Pre-Training", section 3.2, and
Howard and Ruder 2018, "Universal Language Model Fine-tuning for Text Classification" (ULMFiT), who
concatenate that state with mean and maximum pooling; here only the state is used.
Shapes: B batch, L tokens, D width.
"""

from typing import ClassVar, Literal

import torch
from pydantic import SerializeAsAny
from torch import nn

from heedful.models.encoders import Encoded, Sequences, TextEncoder
from heedful.models.language import LanguageModel
from heedful.models.registry import (
    EncoderSettings,
    LanguageSettings,
    build_language_model,
    register_model,
)


class LanguageEncoderSettings(EncoderSettings):
    """A language model as an encoder."""

    renamed: ClassVar[dict[str, str]] = {"writer": "language_model"}
    is_pretrained = True
    kind: Literal["language"] = "language"
    language_model: SerializeAsAny[LanguageSettings]
    """The language model."""

    @property
    def max_length(self) -> int:
        """Longest row in tokens, BEGIN and the ENDs included."""
        return self.language_model.max_length


class LanguageEncoder(TextEncoder):
    """The encoder; BEGIN is replaced by END, and each token attends only to earlier ones.

    END separates the texts of a pair.

    Args:
        writer: the language model.
        dim: width of its states.

    Example:
        >>> from heedful.models.encoders import sequences_of
        >>> from heedful.models.gpt import Gpt, GptSettings
        >>> writer = Gpt(GptSettings(layers=1, hidden_size=8, heads=2), 30)
        >>> encoded = LanguageEncoder(writer, 8)(sequences_of([[7, 9], [8]]))
        >>> encoded.states.shape, encoded.pooled.shape
        (torch.Size([2, 4, 8]), torch.Size([2, 8]))
    """

    dim: int
    pooled_dim: int
    pooled_from = -1

    def __init__(self, writer: LanguageModel, dim: int) -> None:
        super().__init__()
        self.writer = writer
        self.max_length = writer.max_length
        self.dim = self.pooled_dim = dim

    def encode(self, batch: Sequences) -> Encoded:
        """The vectors of a batch; states beyond a row's length are undefined.

        Raises:
            ValueError: rows are longer than ``max_length``.
        """
        states = self.writer.states(batch.tokens)
        rows = torch.arange(len(states), device=states.device)
        return Encoded(states, states[rows, batch.lengths - 1])

    @property
    def embedding(self) -> nn.Embedding:
        return self.writer.embedding

    def attention_axes(self) -> dict[str, tuple[str, ...]]:
        return {f"writer.{name}": axes for name, axes in self.writer.attention_axes().items()}

    def depth(self, name: str) -> int:
        """The parameter's depth in the language model."""
        return self.writer.depth(name.removeprefix("writer."))


def _build(settings: LanguageEncoderSettings, vocabulary: int) -> LanguageEncoder:
    writer = build_language_model(settings.language_model, vocabulary)
    return LanguageEncoder(writer, writer.output_table.shape[1])


register_model(LanguageEncoderSettings, _build)
