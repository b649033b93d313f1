"""An end-to-end memory network as a language model: its facts are the last M tokens.

Sukhbaatar, Szlam, Weston, Fergus 2015, "End-To-End Memory Networks", section 5. The first query is
a constant; the weights of all hops are the same (layer-wise tying), as in a recurrent network
whose steps are hops:

    m_i = A x_i + T_A(t − i)    c_i = C x_i + T_C(t − i)    i = t − M + 1 … t    u¹ = (0.1, …, 0.1)
    p_i = softmax(uᵀ m_i)    o = Σ_i p_i c_i    u ← f(H u + o)    P(x_{t+1}) = softmax(W u)

f is a ReLU on a share of the units, one half in the paper, and nothing on the others.
Shapes: B batch, N rows of search, T tokens, D width, V vocabulary.
"""

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import Field, model_validator
from torch import Tensor, nn

from heedful.attention import Attention
from heedful.attention.masks import window
from heedful.attention.positions import Shaw
from heedful.attention.scores import Dot
from heedful.attention.settings import AttentionSettings
from heedful.basics.limits import MOST_LAYERS, MOST_POSITIONS, MOST_WIDTH
from heedful.layers.dropout import Dropout
from heedful.models.language import LanguageModel, boundary
from heedful.models.registry import LanguageSettings, register_model

_DEVIATION = 0.05
"""Section 5: weights are drawn from N(0, 0.05²)."""
_QUERY = 0.1


class MemoryLanguageSettings(LanguageSettings):
    """Sizes and options of a memory network that is a language model."""

    reads_any_length = True
    kind: Literal["memory-language-model"] = "memory-language-model"
    hidden_size: int = Field(150, ge=1, le=MOST_WIDTH)
    hops: int = Field(6, ge=1, le=MOST_LAYERS)
    memory: int = Field(100, ge=1, le=MOST_POSITIONS)
    """M, the number of tokens that are read."""
    relu_share: float = Field(0.5, ge=0, le=1)
    """The share of the state's units that have a ReLU after each hop."""
    dropout: float = Field(0.0, ge=0, lt=1)
    """Dropout on the state after each hop. Not in the paper."""
    max_length: int = Field(1024, ge=2, le=MOST_POSITIONS)
    """Longest context in tokens, of which each prediction reads the last ``memory``."""
    attention: AttentionSettings = AttentionSettings()
    """Score, normalizer and dropout of the hops; by default the dot product and the softmax."""

    @model_validator(mode="after")
    def _can_be_built(self) -> "MemoryLanguageSettings":
        with torch.device("meta"):
            self.build_attention()
        return self

    def build_attention(self) -> Attention:
        """The attention of all hops."""
        chosen = self.attention.over(AttentionSettings(score=Dot.Settings()))
        made = chosen.build_one(self.hidden_size, self.hidden_size, max_length=self.memory)
        times = Shaw(self.hidden_size, clip=self.memory - 1)
        return Attention(made.score, made.normalize, positions=times, dropout=made.dropout)


@dataclass
class RecentTokens:
    """The last tokens of each text, at most ``memory``, ``[N, T]``."""

    tokens: Tensor

    def select(self, rows: Tensor) -> "RecentTokens":
        """The state of ``rows [M]``, in this order."""
        return RecentTokens(self.tokens.index_select(0, rows))


class MemoryLanguageModel(LanguageModel):
    """A memory network over the last tokens.

    Parameters: ``keys`` (A), ``values`` (C), ``attention.positions`` (T_A and T_C, by the offset of
    a token, of which those ahead are not used), ``carry`` (H), ``output`` (W).

    Args:
        settings: sizes and options.
        vocabulary: number of symbols.

    Source: Sukhbaatar et al. 2015, section 5.

    Example:
        >>> model = MemoryLanguageModel(MemoryLanguageSettings(hidden_size=8, memory=5), 30)
        >>> model.logits(model.states(torch.tensor([[3, 7, 9]]))).shape
        torch.Size([1, 3, 30])
    """

    def __init__(self, settings: MemoryLanguageSettings, vocabulary: int) -> None:
        super().__init__()
        self.settings = settings
        self.max_length = settings.max_length
        width = settings.hidden_size
        self.keys, self.values = nn.Embedding(vocabulary, width), nn.Embedding(vocabulary, width)
        self.attention = settings.build_attention()
        self.carry = nn.Linear(width, width, bias=False)
        self.output = nn.Linear(width, vocabulary, bias=False)
        self.drop = Dropout(settings.dropout)
        self.rectified = round(settings.relu_share * width)
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=_DEVIATION)

    def states(self, tokens: Tensor) -> Tensor:
        seen = boundary(tokens)
        mask = window(self.settings.memory - 1, 0)
        memory = self.attention.remember(self.keys(seen), self.values(seen))
        state = torch.full_like(memory.value, _QUERY)
        for _ in range(self.settings.hops):
            state = self._next(state, self.attention.read(state, memory, mask, first=0))
        return state

    def _next(self, state: Tensor, read: Tensor) -> Tensor:
        """The state after a hop, ``f(H u + o)``."""
        linear = self.carry(state) + read
        first, rest = linear.split([self.rectified, linear.shape[-1] - self.rectified], -1)
        result: Tensor = self.drop(torch.cat([F.relu(first), rest], -1))
        return result

    @property
    def embedding(self) -> nn.Embedding:
        return self.keys

    @property
    def output_table(self) -> Tensor:
        return self.output.weight

    def start(self, prompts: Tensor) -> RecentTokens:
        if prompts.dim() != 2 or not prompts.shape[1]:
            raise ValueError(f"prompts are {list(prompts.shape)}: expected [B, T], T at least 1")
        return RecentTokens(prompts[:, :-1][:, -self.settings.memory :])

    def step(self, tokens: Tensor, state: RecentTokens) -> tuple[Tensor, RecentTokens]:
        recent = torch.cat([state.tokens, tokens.unsqueeze(1)], 1)[:, -self.settings.memory :]
        seen = boundary(recent)
        memory = self.attention.remember(self.keys(seen), self.values(seen))
        query = torch.full_like(memory.value[:, -1:], _QUERY)
        for _ in range(self.settings.hops):
            query = self._next(query, self.attention.read(query, memory, first=seen.shape[1] - 1))
        return self.logits(query.squeeze(1)), RecentTokens(recent)

    def attention_axes(self) -> dict[str, tuple[str, ...]]:
        hops = ("hops",) if self.settings.hops > 1 else ()
        return {"attention": ("text", "text", *hops)}

    def depth(self, name: str) -> int:
        """0 for embeddings, 1 for the hops, 2 for the output."""
        return {"keys": 0, "values": 0, "output": 2}.get(name.partition(".")[0], 1)


register_model(MemoryLanguageSettings, MemoryLanguageModel)
