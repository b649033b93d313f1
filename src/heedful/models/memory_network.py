"""End-to-end memory networks: Sukhbaatar, Szlam, Weston, Fergus 2015, "End-To-End Memory Networks".

At each hop the state attends to the facts of a story, and what it reads is added:

    m_i = Σ_j l_j ∘ A x_ij + T_A(i)    c_i = Σ_j l_j ∘ C x_ij + T_C(i)    u¹ = Σ_j l_j ∘ B q_j
    p_i = softmax(uᵀ m_i)    o = Σ_i p_i c_i    u ← u + o, or H u + o    â = softmax(W u)

With supporting facts, the scores of each hop can be trained as well (Weston, Chopra, Bordes 2015,
"Memory Networks", section 3; a softmax loss in place of their margin ranking loss).
Shapes: B stories, N facts, L tokens of a fact, Q tokens of a question, D width, K hops, C answers.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from pydantic import Field, model_validator
from torch import Tensor, nn

from heedful.attention import Attention
from heedful.attention.scores import Dot
from heedful.attention.settings import AttentionSettings
from heedful.basics.limits import MOST_FACTS, MOST_LAYERS, MOST_POSITIONS, MOST_SYMBOLS, MOST_WIDTH
from heedful.basics.symbols import PAD
from heedful.layers.dropout import Dropout
from heedful.models.registry import StorySettings, register_model
from heedful.models.stories import (
    Encoding,
    StoryModel,
    StoryOutput,
    TextEncoding,
    ages,
    n_gram_rows,
    noisy_ages,
    told,
)

_DEVIATION = 0.1


class MemoryNetworkSettings(StorySettings):
    """Sizes and options of an end-to-end memory network."""

    kind: Literal["memory-network"] = "memory-network"
    hidden_size: int = Field(50, ge=1, le=MOST_WIDTH)
    hops: int = Field(3, ge=1, le=MOST_LAYERS)
    encoding: Encoding = "positions"
    """How the embeddings of a text's words are summed (section 4.1)."""
    longest_text: int = Field(0, ge=0, le=MOST_POSITIONS)
    """J of the fixed weights of positions: with 0, the number of words of each text, so that the
    weight of a word's place depends on the length of its text. The program of the paper's authors
    has one J, that of the longest text."""
    n_grams: int = Field(1, ge=1, le=8)
    """Length of the longest n-grams of words whose embeddings are added to a text's vector, besides
    those of its words (NG of Weston et al. 2016); 1: none."""
    n_gram_rows: int = Field(8192, ge=2, le=MOST_SYMBOLS)
    """Rows of each table of n-grams. A hash of an n-gram's words is its row; several n-grams can
    have the same one."""
    n_gram_dropout: float = Field(0.0, ge=0, lt=1)
    """Share of the n-grams that training leaves out at random."""
    tying: Literal["adjacent", "layer-wise"] = "adjacent"
    """Which embedding tables are the same (section 2.2)."""
    time_noise: float = Field(0.1, ge=0, le=1)
    """Largest share of empty facts that training adds at random places."""
    can_stop: bool = False
    """Whether a hop may read no fact, so that a question can need fewer facts than there are hops
    (the adaptive memory of Weston et al. 2016, "Towards AI-Complete Question Answering")."""
    empty_slots: bool = False
    """Whether a hop also attends to the slots of the memory that hold no fact, as in the program of
    the paper's authors: their keys and values are zero. All of them together are one column, as
    with ``can_stop``, whose score is log n larger for n slots; with the softmax, this is the same
    as n columns."""
    relative_time: int = Field(0, ge=0, le=MOST_FACTS)
    """Reach R of what a hop knows about time: b_d + uᵀe_d is added to the score of a fact that was
    told d facts after that of the previous hop, cut off at ±R, with the state u, trained numbers b
    and vectors e. Not in the paper; it has the role of the features of time in Weston et al. 2015,
    section 3.4; 0: none."""
    readout_size: int = Field(0, ge=0, le=MOST_WIDTH)
    """Width of a hidden layer that reads the question and what every hop has read, for answers that
    need a comparison, such as yes and no (the non-linear models of Weston et al. 2016); 0: the
    answer is a linear function of the last state."""
    dropout: float = Field(0.0, ge=0, lt=1)
    """Dropout on the state, and on the hidden layer."""
    attention: AttentionSettings = AttentionSettings()
    """Score and normalizer of the hops; by default the dot product and the softmax."""

    @model_validator(mode="after")
    def _can_be_built(self) -> "MemoryNetworkSettings":
        with torch.device("meta"):
            self.build_attention()
        if self.can_stop and self.empty_slots:
            raise ValueError(
                "can_stop and empty_slots are two ways to read no fact; set one of them"
            )
        return self

    def build_attention(self) -> Attention:
        """The attention of all hops."""
        chosen = self.attention.over(AttentionSettings(score=Dot.Settings()))
        return chosen.build_one(self.hidden_size, self.hidden_size, max_length=self.memory + 1)


class Facts(NamedTuple):
    """The facts as a hop sees them."""

    key: Tensor
    """``[B, N, D]``"""
    value: Tensor
    """``[B, N, D]``"""
    told: Tensor
    """Which are not padding ``[B, N]``."""
    added: Tensor | None
    """Added to the scores ``[B, 1, N]``."""


class MemoryNetwork(StoryModel):
    """A memory network of K hops.

    Args:
        settings: sizes and options.
        words: number of symbols of the vocabulary.
        answers: the symbol of each answer ``[C]``.

    Source: Sukhbaatar et al. 2015, sections 2 and 4.1.

    Example:
        >>> network = MemoryNetwork(MemoryNetworkSettings(hidden_size=8), 30, answers=[5, 6, 7])
        >>> story, question = torch.tensor([[[4, 5], [6, 0]]]), torch.tensor([[9, 5, 4]])
        >>> network(story, question).logits.shape
        torch.Size([1, 3])
    """

    def __init__(self, settings: MemoryNetworkSettings, words: int, answers: Sequence[int]) -> None:
        super().__init__()
        self.settings = settings
        self.can_stop = settings.can_stop or settings.empty_slots
        adjacent, hops, width = settings.tying == "adjacent", settings.hops, settings.hidden_size
        count = hops + 1 if adjacent else 2  # adjacent: A_k+1 is C_k, B is A_1, W is C_K
        longest = settings.memory + -int(-settings.memory * settings.time_noise // 1)
        self.tables = nn.ModuleList(nn.Embedding(words, width, PAD) for _ in range(count))
        self.times = nn.ModuleList(nn.Embedding(longest, width) for _ in range(count))
        if not adjacent:
            self.question_table = nn.Embedding(words, width, PAD)
            self.between = nn.Linear(width, width, bias=False)
        if not adjacent and not settings.readout_size:
            self.output = nn.Linear(width, len(answers), bias=False)
        if settings.n_grams > 1:
            rows, own = settings.n_gram_rows, count + (not adjacent)  # the last is the question's
            self.n_gram_tables = nn.ModuleList(nn.Embedding(rows, width, PAD) for _ in range(own))
        if settings.can_stop:
            self.stop = nn.Parameter(torch.empty(hops, width))
        if settings.relative_time:
            distances = 2 * settings.relative_time + 1
            self.relative = nn.Parameter(torch.zeros(hops, distances))
            self.relative_keys = nn.Parameter(torch.zeros(hops, distances, width))
        if settings.readout_size:
            self.hidden = nn.Linear((hops + 1) * width, settings.readout_size)
            self.readout = nn.Linear(settings.readout_size, len(answers))
        self.encode = TextEncoding(settings.encoding, width, settings.longest_text)
        self.attention, self.drop = settings.build_attention(), Dropout(settings.dropout)
        self.answers: Tensor
        self.register_buffer("answers", torch.tensor(answers, dtype=torch.long), persistent=False)
        self._initialise()

    def _initialise(self) -> None:
        own = {id(part) for part in (*self.attention.parameters(), *self.encode.parameters())}
        for part in (getattr(self, "hidden", None), getattr(self, "readout", None)):
            own |= set() if part is None else {id(one) for one in part.parameters()}
        for parameter in self.parameters():
            if id(parameter) not in own:
                nn.init.normal_(parameter, std=_DEVIATION)
        for part in self.modules():
            if isinstance(part, nn.Embedding) and part.padding_idx is not None:
                with torch.no_grad():
                    part.weight[part.padding_idx].zero_()

    def forward(self, story: Tensor, question: Tensor, *, linear: bool = False) -> StoryOutput:
        """Answer questions; a story has at most ``memory`` facts."""
        own, facts = self.settings, told(story)
        noisy = self.training and own.time_noise > 0
        age = noisy_ages(facts, own.time_noise) if noisy else ages(facts)
        adjacent = own.tying == "adjacent"
        count = own.hops + 1 if adjacent else 2
        memories = [self._text(place, story) + self.times[place](age) for place in range(count)]
        state, scores = self._text(0 if adjacent else count, question).unsqueeze(1), []  # [B, 1, D]
        reads, before = [state], None
        for hop in range(own.hops):
            key, value = memories[hop : hop + 2] if adjacent else memories
            added = self._from_time(hop, before, age, state)
            read, found = self._hop(hop, state, Facts(key, value, facts, added), linear)
            if own.relative_time:
                before = self.attention.normalize(found, found.isfinite())
            state = self.drop(read + (state if adjacent else self.between(state)))
            reads.append(read)
            scores.append(found)
        return StoryOutput(self._answer(state.squeeze(1), reads), torch.cat(scores, 1))

    def _answer(self, state: Tensor, reads: list[Tensor]) -> Tensor:
        """Logits ``[B, C]`` of the last state ``[B, D]``, or of the question and all that was read,
        ``[B, 1, D]`` each."""
        if self.settings.readout_size:
            hidden = torch.relu(self.hidden(torch.cat(reads, -1).squeeze(1)))
            logits: Tensor = self.readout(self.drop(hidden))
            return logits
        adjacent = self.settings.tying == "adjacent"
        output: Tensor = self.tables[-1](self.answers) if adjacent else self.output.weight
        return state @ output.T

    def _text(self, place: int, tokens: Tensor) -> Tensor:
        """Texts ``[.., L]`` to ``[.., D]`` with the tables of a place."""
        table = self.tables[place] if place < len(self.tables) else self.question_table
        found: Tensor = self.encode(table, tokens)
        own = self.settings
        if own.n_grams > 1:
            rows = n_gram_rows(tokens, own.n_grams, own.n_gram_rows)
            left_out = own.n_gram_dropout if self.training else 0.0
            if left_out:
                rows = rows * (torch.rand(rows.shape) >= left_out).to(rows.device)
            found = found + self.n_gram_tables[place](rows).sum(-2) / (1 - left_out)
        return found

    def _from_time(
        self, hop: int, before: Tensor | None, age: Tensor, state: Tensor
    ) -> Tensor | None:
        """What is added to the scores ``[B, 1, N]``: Σ_j p_j r(age_j − age_i), r(d) = b_d + uᵀe_d,
        with the weights p of the hop before ``[B, 1, N]`` and the state u ``[B, 1, D]``; None for
        the first hop."""
        if before is None:
            return None
        reach, weights = self.settings.relative_time, before[..., int(self.can_stop) :]
        distance = (age.unsqueeze(1) - age.unsqueeze(2)).clamp(-reach, reach) + reach  # [B, i, j]
        by = self.relative[hop] + state @ self.relative_keys[hop].mT  # [B, 1, 2 R + 1]
        terms = by.expand(-1, distance.shape[1], -1).gather(-1, distance)
        return (terms @ weights.mT).mT

    def _hop(self, hop: int, state: Tensor, given: "Facts", linear: bool) -> tuple[Tensor, Tensor]:
        """What is read ``[B, 1, D]``, and the scores ``[B, 1, N]``."""
        key, value, facts, added = given
        if self.can_stop:
            stop = self.stop[hop] if self.settings.can_stop else key.new_zeros(key.shape[-1])
            stop = stop.expand(len(key), 1, -1)
            key, value = torch.cat([stop, key], 1), torch.cat([torch.zeros_like(stop), value], 1)
            added = None if added is None else F.pad(added, (1, 0))
            if self.settings.empty_slots and not linear:  # what is read there is zero
                added = self._from_empty_slots(facts, added)
            facts = torch.cat([torch.ones_like(facts[:, :1]), facts], 1)
        allowed = facts.unsqueeze(1)
        scores: Tensor = self.attention.score(state, key)
        mask = allowed
        if added is not None:
            scores, mask = scores + added, added.masked_fill(~allowed, float("-inf"))
        read = (
            (scores * allowed) @ value if linear else self.attention(state, key, value, mask=mask)
        )
        return read, scores.masked_fill(~allowed, float("-inf"))

    def _from_empty_slots(self, facts: Tensor, added: Tensor | None) -> Tensor:
        """What is added to the scores ``[B, 1, 1 + N]`` so that the first column stands for all
        slots without a fact: with the softmax, n equal scores s are one score s + log n."""
        if added is None:
            shape = (len(facts), 1, 1 + facts.shape[1])
            added = torch.zeros(shape, device=facts.device, dtype=next(self.parameters()).dtype)
        count = (self.settings.memory - facts.sum(1)).clamp(min=0).to(added)
        return torch.cat([count.log().view(-1, 1, 1), added[..., 1:]], -1)

    def attention_axes(self) -> dict[str, tuple[str, ...]]:
        """The weights of each hop over the facts."""
        return {"attention": ("hops", "facts")}


register_model(MemoryNetworkSettings, MemoryNetwork)
