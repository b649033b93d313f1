"""The recurrent pointer-generator with coverage.

See, Liu and Manning 2017, "Get To The Point: Summarization with Pointer-Generator Networks",
section 2. A bidirectional LSTM reads the source (states h_i), an LSTM reads the word w_t before
each output (states s_t, input x_t, the embedding of w_t):

    e_ti = vᵀ tanh(W_h h_i + W_s s_t + w_c c_ti + b)     equation 11; without coverage, equation 1
    a_t = softmax(e_t),   c_t = Σ_{t' < t} a_t'          equations 2 and 10
    h*_t = Σ_i a_ti h_i                                  equation 3
    P_vocabulary = softmax(V'(V [s_t; h*_t] + b) + b')   equation 4
    p_t = σ(w_h*ᵀ h*_t + w_sᵀ s_t + w_xᵀ x_t + b_ptr)    equation 8

The mixture (equation 9) and the coverage loss (equation 12) are those of
:mod:`heedful.models.copy_mixture`. Choices that the paper leaves open: the decoder's first state is
that of :class:`heedful.layers.recurrent.Bridge`; dropout is applied to embeddings and to the
readout V [s_t; h*_t] + b.

Shapes: B batch, N rows of search, S source tokens, T target tokens, E embedding, H hidden, D
readout, V vocabulary, X extension.
"""

from typing import Any, ClassVar, Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor, nn

from heedful.attention import Memory, RecurrentAttention, coverage_loss, masks
from heedful.attention.recurrent import AttentionState
from heedful.attention.scores import Additive, Coverage
from heedful.basics.limits import MOST_POSITIONS, MOST_WIDTH
from heedful.kernels.cross_entropy import cross_entropy
from heedful.layers.dropout import Dropout
from heedful.layers.embeddings import token_embedding
from heedful.layers.recurrent import Bridge, RecurrentEncoder, RecurrentStack, glorot_linear
from heedful.models.copy_mixture import (
    Copied,
    CopyingModel,
    Losses,
    extension_of,
    listed,
    mixture,
)
from heedful.models.pairs import PairModel, Source, TensorState, require_one_vocabulary
from heedful.models.registry import PairSettings, register_model

__all__ = ["AttentiveNetwork", "PointerGenerator", "PointerGeneratorSettings"]


class PointerGeneratorSettings(PairSettings):
    """Sizes and options."""

    reads_any_length: ClassVar[bool] = True
    kind: Literal["pointer-generator"] = "pointer-generator"
    embedding_size: int = Field(128, ge=1, le=MOST_WIDTH)
    """E, the width of the embeddings."""
    hidden_size: int = Field(256, ge=1, le=MOST_WIDTH)
    """H, the width of a state, in each direction."""
    copy_source: bool = True
    """Whether words of the source can be copied; without it, the model is the paper's baseline."""
    coverage: bool = False
    """Whether the attention reads the sum of its earlier weights."""
    tied_embeddings: Literal["all", "inputs", "none"] = "inputs"
    """Which matrices are tied: both embeddings and the output ("all"), both embeddings ("inputs"),
    or none."""
    dropout: float = Field(0.3, ge=0.0, lt=1.0)
    max_length: int = Field(512, ge=2, le=MOST_POSITIONS)
    """Longest sequence in tokens, END included."""

    @property
    def needs_one_vocabulary(self) -> bool:
        return self.copy_source or super().needs_one_vocabulary


class Written(NamedTuple):
    """What the decoder computes at each of T positions."""

    readout: Tensor
    """``V [s; h*] + b``, ``[B, T, D]``."""
    weights: Tensor
    """a, ``[B, T, S]``."""
    parts: Tensor
    """``[h*; s; x]``, ``[B, T, 3 H + E]``."""
    state: TensorState
    """The state after them."""


class AttentiveNetwork(PairModel):
    """Sequence to sequence with attention: the network without its pointer (section 2.1).

    Args:
        settings: sizes and options.
        source_vocabulary: number of source symbols.
        target_vocabulary: number of target symbols.

    Raises:
        ValueError: embeddings are tied, but the vocabularies differ in size.
    """

    def __init__(
        self, settings: PointerGeneratorSettings, source_vocabulary: int, target_vocabulary: int
    ) -> None:
        super().__init__()
        require_one_vocabulary(settings.tied_embeddings, source_vocabulary, target_vocabulary)
        self.settings, self.max_length = settings, settings.max_length
        width, hidden, tied = (
            settings.embedding_size,
            settings.hidden_size,
            settings.tied_embeddings,
        )
        self.target_embedding = token_embedding(target_vocabulary, width)
        self.source_embedding = (
            token_embedding(source_vocabulary, width) if tied == "none" else self.target_embedding
        )
        self.drop = Dropout(settings.dropout)
        self.encoder = RecurrentEncoder(
            "lstm", width, hidden, 1, bidirectional=True, dropout=settings.dropout
        )
        self.bridge = Bridge("lstm", 2 * hidden, 1, hidden, 1)
        self.decoder = RecurrentStack("lstm", width, hidden, 1, dropout=settings.dropout)
        self.attention = RecurrentAttention(_score(settings))
        self.combine = glorot_linear(3 * hidden, width if tied == "all" else hidden)
        self.output = None
        if tied != "all":
            self.output = nn.Linear(hidden, target_vocabulary, bias=False)
            nn.init.normal_(self.output.weight, std=hidden**-0.5)
        self.bias = nn.Parameter(torch.zeros(target_vocabulary))

    @property
    def output_table(self) -> Tensor:
        return self.target_embedding.weight if self.output is None else self.output.weight

    @property
    def output_bias(self) -> Tensor:
        return self.bias

    def start(self, source: Source) -> TensorState:
        embedded = self.drop(self._embedded(self.source_embedding, source.tokens))
        annotations, final = self.encoder(embedded, source.lengths)
        [(hidden, cell)] = self.bridge(final)
        count, length = source.tokens.shape
        memory = self.attention.remember(annotations)
        state = TensorState(
            hidden=hidden,
            cell=cell,
            key=memory.key,
            value=memory.value,
            allowed=masks.padding(source.lengths).dense((count, 1, length), hidden.device),
            tokens=source.tokens,
            # It only has a width: that of the extension.
            room=hidden.new_zeros(count, extension_of(source.tokens, len(self.output_table))),
        )
        for name, part in zip(_COVERED, self.attention.start(memory).score, strict=False):
            state[name] = part
        return state

    def write(self, target_in: Tensor, state: TensorState) -> Written:
        """Read ``target_in [B, T]``, starting from ``state``."""
        embedded = self.drop(self._embedded(self.target_embedding, target_in))
        given = (state["hidden"], state["cell"])
        states, [(hidden, cell)] = self.decoder(embedded, (given,))
        past = tuple(state[name] for name in _COVERED if name in state)
        memory = Memory(state["key"], state["value"])
        weights, after = self.attention.weigh(
            states, memory, AttentionState(0, past, ()), state["allowed"]
        )
        contexts = weights.to(memory.value.dtype) @ memory.value
        now = TensorState({**state, "hidden": hidden, "cell": cell})
        now.update(zip(_COVERED, after.score, strict=False))
        readout = self.drop(self.combine(torch.cat([states, contexts], -1)))
        return Written(readout, weights, torch.cat([contexts, states, embedded], -1), now)

    def _embedded(self, table: nn.Module, tokens: Tensor) -> Tensor:
        found: Tensor = table(listed(tokens, len(self.output_table)))
        return found

    def states(self, source: Source, target_in: Tensor) -> Tensor:
        return self.write(target_in, self.start(source)).readout

    def covered_losses(
        self, source: Source, target_in: Tensor, labels: Tensor, real: Tensor, smoothing: float
    ) -> Losses:
        """The results of ``losses``, and the coverage loss of the attention."""
        found = self.write(target_in, self.start(source))
        some = found.readout[real], self.output_table, labels[real]
        total, exact = cross_entropy(*some, smoothing, self.output_bias)
        return Losses(total, exact, coverage_loss(found.weights)[real].sum())

    def step(self, tokens: Tensor, state: Any) -> tuple[Tensor, TensorState]:
        found = self.write(tokens.unsqueeze(1), state)
        return self.logits(found.readout.squeeze(1)), found.state

    def attention_axes(self) -> dict[str, tuple[str, str]]:
        return {"attention": ("target", "source")}


_COVERED = ("covered",)
"""Names of the tensors of the score's state."""


def _score(settings: PointerGeneratorSettings) -> Additive | Coverage:
    hidden = settings.hidden_size
    if settings.coverage:
        return Coverage(hidden, 2 * hidden, hidden)
    score = Additive(hidden, 2 * hidden, hidden)
    score.key_projection = nn.Linear(2 * hidden, hidden)  # equation 1 has a bias
    return score


class PointerGenerator(CopyingModel, AttentiveNetwork):
    """The network with its pointer.

    Args:
        settings: sizes and options.
        source_vocabulary: number of source symbols.
        target_vocabulary: number of target symbols, the same symbols.

    Raises:
        ValueError: the vocabularies differ in size.

    Example:
        >>> settings = PointerGeneratorSettings(embedding_size=8, hidden_size=8)
        >>> model = PointerGenerator(settings, 20, 20)
        >>> source = Source(torch.tensor([[7, 20, 3]]), torch.tensor([3]))  # 20 is not listed
        >>> model.teacher_force(source, torch.tensor([[2, 8]])).shape
        torch.Size([1, 2, 21])
    """

    def __init__(
        self, settings: PointerGeneratorSettings, source_vocabulary: int, target_vocabulary: int
    ) -> None:
        super().__init__(settings, source_vocabulary, target_vocabulary)
        if source_vocabulary != target_vocabulary:
            raise ValueError(
                "model.copy_source = true requires one vocabulary for both sides "
                "(tokeniser.joint = true)"
            )
        parts = 3 * settings.hidden_size + settings.embedding_size
        # A vector instead of nn.Linear: quantised copies of the model keep it exact.
        self.gate = nn.Parameter(torch.empty(parts))
        self.gate_bias = nn.Parameter(torch.zeros(1))
        nn.init.normal_(self.gate, std=parts**-0.5)

    def _copied(self, found: Written, tokens: Tensor) -> Copied:
        weights, wide = found.weights, found.weights.dtype
        gate = (found.parts @ self.gate.to(found.parts.dtype)).to(wide) + self.gate_bias.to(wide)
        return Copied(weights, gate.unsqueeze(-1), tokens.unsqueeze(1).expand_as(weights))

    def read(self, source: Source, target_in: Tensor) -> tuple[Tensor, Copied]:
        found = self.write(target_in, self.start(source))
        return found.readout, self._copied(found, source.tokens)

    def step(self, tokens: Tensor, state: Any) -> tuple[Tensor, TensorState]:
        found = self.write(tokens.unsqueeze(1), state)
        copied = self._copied(found, state["tokens"])
        one = Copied(*(part.squeeze(1) for part in copied))
        extension = state["room"].shape[1]
        return mixture(self.logits(found.readout.squeeze(1)), one, extension), found.state


def build_pointer_generator(
    settings: PointerGeneratorSettings, source_vocabulary: int, target_vocabulary: int
) -> AttentiveNetwork:
    """The network of the settings, with or without its pointer."""
    kind = PointerGenerator if settings.copy_source else AttentiveNetwork
    return kind(settings, source_vocabulary, target_vocabulary)


register_model(PointerGeneratorSettings, build_pointer_generator)
