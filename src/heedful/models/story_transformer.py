"""A Transformer over the facts of a story and the question: one vector for each of them.

    h = [Σ_j l_j ∘ E x_1j + T(N − 1), …, Σ_j l_j ∘ E x_Nj + T(0), Σ_j l_j ∘ E q_j + b]
    h ← L layers of self-attention;   â = W h_question

The inputs are those of Dehghani et al. 2019, "Universal Transformers", appendix D.1: facts as sums
of words with learned weights of their places. Layers may share their weights, as in that paper,
without its halting.
Shapes: B stories, N facts, L tokens of a fact, Q tokens of a question, D width, C answers.
"""

from collections.abc import Sequence
from typing import Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from heedful.attention.settings import AttentionSettings
from heedful.basics.limits import MOST_LAYERS, MOST_WIDTH
from heedful.basics.symbols import PAD
from heedful.layers.dropout import Dropout
from heedful.layers.transformer import BlockOptions, EncoderLayer
from heedful.models.registry import StorySettings, register_model
from heedful.models.stories import (
    Encoding,
    StoryModel,
    StoryOutput,
    TextEncoding,
    ages,
    noisy_ages,
    told,
)

_DEVIATION = 0.1


class StoryTransformerSettings(StorySettings):
    """Sizes and options of a Transformer over facts."""

    kind: Literal["story-transformer"] = "story-transformer"
    layers: int = Field(3, ge=1, le=MOST_LAYERS)
    shared_layers: bool = True
    """Whether all layers have the same weights."""
    hidden_size: int = Field(128, ge=1, le=MOST_WIDTH)
    ffn_size: int = Field(256, ge=1, le=MOST_WIDTH)
    encoding: Encoding = "learned"
    """How the embeddings of a text's words are summed."""
    dropout: float = Field(0.1, ge=0, lt=1)
    """Dropout on the inputs and on each sublayer's output."""
    time_noise: float = Field(0.1, ge=0, le=1)
    """Largest share of empty facts that training adds at random places."""
    attention: AttentionSettings = AttentionSettings()
    """Of all layers; by default 4 heads."""

    @model_validator(mode="after")
    def _can_be_built(self) -> "StoryTransformerSettings":
        self.of_layers.check(self.hidden_size, "self")
        return self

    @property
    def of_layers(self) -> AttentionSettings:
        """The settings of the attention of a layer."""
        return self.attention.over(AttentionSettings(heads=4))


class StoryTransformer(StoryModel):
    """A Transformer over the facts of a story and the question.

    Args:
        settings: sizes and options.
        words: number of symbols of the vocabulary.
        answers: the symbol of each answer ``[C]``; only their number counts.

    Example:
        >>> settings = StoryTransformerSettings(hidden_size=8, ffn_size=8)
        >>> model = StoryTransformer(settings, 30, answers=[5, 6, 7])
        >>> story, question = torch.tensor([[[4, 5], [6, 0]]]), torch.tensor([[9, 5, 4]])
        >>> model(story, question).logits.shape
        torch.Size([1, 3])
    """

    def __init__(
        self, settings: StoryTransformerSettings, words: int, answers: Sequence[int]
    ) -> None:
        super().__init__()
        self.settings, width = settings, settings.hidden_size
        longest = settings.memory + -int(-settings.memory * settings.time_noise // 1)
        self.table, self.times = nn.Embedding(words, width, PAD), nn.Embedding(longest, width)
        self.asked = nn.Parameter(torch.empty(width))
        self.encode = TextEncoding(settings.encoding, width)
        self.drop = Dropout(settings.dropout)
        options = BlockOptions(
            width, settings.ffn_size, settings.dropout, settings.dropout, pre_norm=True
        )
        count = 1 if settings.shared_layers else settings.layers
        self.layers = nn.ModuleList(
            EncoderLayer(options, settings.of_layers, number=number + 1) for number in range(count)
        )
        self.norm, self.output = nn.LayerNorm(width), nn.Linear(width, len(answers))
        for one in (self.table.weight, self.times.weight, self.asked):
            nn.init.normal_(one, std=_DEVIATION)
        with torch.no_grad():
            self.table.weight[PAD].zero_()

    def forward(self, story: Tensor, question: Tensor, *, linear: bool = False) -> StoryOutput:
        """Answer questions; a story has at most ``memory`` facts. There is no linear form."""
        own, facts = self.settings, told(story)
        noisy = self.training and own.time_noise > 0
        age = noisy_ages(facts, own.time_noise) if noisy else ages(facts)
        read = self.encode(self.table, story) + self.times(age)
        asked = (self.encode(self.table, question) + self.asked).unsqueeze(1)
        hidden = self.drop(torch.cat([read, asked], 1))  # [B, N + 1, D]
        allowed = torch.cat([facts, torch.ones_like(facts[:, :1])], 1).unsqueeze(1)
        for place in range(own.layers):
            hidden = self.layers[0 if own.shared_layers else place](hidden, allowed)
        return StoryOutput(self.output(self.norm(hidden[:, -1])))

    def attention_axes(self) -> dict[str, tuple[str, ...]]:
        """Self-attention over the facts and the question, in each layer."""
        if self.settings.shared_layers:
            return {"layers.0.self_attention": ("story", "story", "layers")}
        return {f"layers.{n}.self_attention": ("story",) * 2 for n in range(len(self.layers))}


register_model(StoryTransformerSettings, StoryTransformer)
