"""A language model of recurrent layers, without attention.

Zaremba et al. 2014, "Recurrent Neural Network Regularization": dropout on the input of each layer
and the output of the last, never on recurrent connections. Tied embeddings: Press and Wolf 2017,
"Using the Output Embedding to Improve Language Models".
Shapes: B batch, N rows of search, T tokens, E embedding, D width of a state, V vocabulary.
"""

import re
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator
from torch import Tensor, nn

from heedful.basics.limits import MOST_LAYERS, MOST_POSITIONS, MOST_WIDTH
from heedful.layers.dropout import Dropout
from heedful.layers.embeddings import token_embedding
from heedful.layers.multiplicative import HyperSizes, MultiplicativeStack, switched_embedding
from heedful.layers.recurrent import Hidden, RecurrentStack
from heedful.models.language import LanguageModel, boundary
from heedful.models.registry import LanguageSettings, register_model


class RecurrentLanguageSettings(LanguageSettings):
    """Sizes and options of a recurrent language model."""

    renamed: ClassVar[dict[str, str]] = {
        "dim": "hidden_size",
        "embedding_dim": "embedding_size",
        "tied": "tied_embeddings",
    }
    reads_any_length = True
    kind: Literal["recurrent-language-model"] = "recurrent-language-model"
    cell: Literal["lstm", "gru", "mlstm", "hyper-lstm", "switched"] = "lstm"
    layers: int = Field(2, ge=1, le=MOST_LAYERS)
    hidden_size: int = Field(256, ge=1, le=MOST_WIDTH)
    """Width of a layer's state."""
    embedding_size: int = Field(ge=1, le=MOST_WIDTH)
    """``hidden_size`` by default. Of ``switched``: always a matrix and a vector."""
    dropout: float = Field(0.2, ge=0, lt=1)
    """Dropout on embeddings, between layers and on the last layer's states."""
    hyper_size: int = Field(64, ge=1, le=MOST_WIDTH)
    """Of ``hyper-lstm``: width of the smaller LSTM that scales the gates."""
    hyper_embedding_size: int = Field(8, ge=1, le=MOST_WIDTH)
    """Of ``hyper-lstm``: width of the vector from which the scales of a gate are computed."""
    layer_norm: bool = True
    """Of ``hyper-lstm``: whether gates and cells are normalized."""
    tied_embeddings: bool = True
    """Whether the output matrix is the token embedding."""
    max_length: int = Field(1024, ge=2, le=MOST_POSITIONS)
    """Longest context in tokens; a state may be carried beyond it."""

    @model_validator(mode="before")
    @classmethod
    def _as_wide(cls, given: Any) -> Any:
        if isinstance(given, dict) and given.get("embedding_size") is None:
            width = given.get("hidden_size", cls.model_fields["hidden_size"].default)
            switched = given.get("cell") == "switched" and isinstance(width, int)
            return {**given, "embedding_size": width * (width + 1) if switched else width}
        return given

    def _check_switched(self) -> None:
        if self.layers > 1:
            raise ValueError(
                "symbols switch the matrices of one layer: set layers = 1 with the switched cell"
            )
        if self.embedding_size != self.hidden_size * (self.hidden_size + 1):
            raise ValueError(
                "a switched cell's embedding is a matrix and a vector: remove embedding_size"
            )
        if self.tied_embeddings:
            raise ValueError(
                "a switched cell's embedding is a matrix and a vector, which the output cannot "
                "share: set tied_embeddings = false"
            )

    @model_validator(mode="after")
    def _tieable(self) -> "RecurrentLanguageSettings":
        if self.cell == "switched":
            self._check_switched()
        if self.tied_embeddings and self.embedding_size != self.hidden_size:
            raise ValueError(
                "tied embeddings need equal embedding_size and hidden_size, "
                f"not {self.embedding_size} and {self.hidden_size}; make them equal, or set "
                "tied_embeddings = false"
            )
        return self


@dataclass
class RecurrentLanguageState:
    """All layers' states after the tokens so far, one row for each generated text."""

    hidden: Hidden

    def select(self, rows: Tensor) -> "RecurrentLanguageState":
        """The state of ``rows [M]``, in this order."""
        return RecurrentLanguageState(
            tuple(tuple(part.index_select(0, rows) for part in layer) for layer in self.hidden)
        )

    def detach(self) -> "RecurrentLanguageState":
        """The state without its autograd history, for truncated backpropagation."""
        return RecurrentLanguageState(
            tuple(tuple(part.detach() for part in layer) for layer in self.hidden)
        )


def _stack(settings: RecurrentLanguageSettings) -> RecurrentStack | MultiplicativeStack:
    """The layers."""
    sizes = (settings.embedding_size, settings.hidden_size, settings.layers)
    if settings.cell == "lstm" or settings.cell == "gru":
        return RecurrentStack(settings.cell, *sizes, dropout=settings.dropout)
    hyper = HyperSizes(settings.hyper_size, settings.hyper_embedding_size, settings.layer_norm)
    return MultiplicativeStack(settings.cell, *sizes, dropout=settings.dropout, hyper=hyper)


class RecurrentLanguageModel(LanguageModel):
    """Recurrent layers over the tokens so far.

    Args:
        settings: sizes and options.
        vocabulary: number of symbols.

    Example:
        >>> import torch
        >>> model = RecurrentLanguageModel(RecurrentLanguageSettings(hidden_size=8), 30)
        >>> model.logits(model.states(torch.tensor([[3, 7, 9]]))).shape
        torch.Size([1, 3, 30])
    """

    def __init__(self, settings: RecurrentLanguageSettings, vocabulary: int) -> None:
        super().__init__()
        self.settings = settings
        self.max_length = settings.max_length
        self.tokens = (
            switched_embedding(vocabulary, settings.hidden_size)
            if settings.cell == "switched"
            else token_embedding(vocabulary, settings.embedding_size)
        )
        self.drop = Dropout(settings.dropout)
        self.recurrent = _stack(settings)
        self.output = None
        if not settings.tied_embeddings:
            self.output = nn.Linear(settings.hidden_size, vocabulary, bias=False)
            nn.init.normal_(self.output.weight, std=settings.hidden_size**-0.5)

    def fresh(self, rows: int) -> RecurrentLanguageState:
        """The state before any token: zeros."""
        zeros = self.tokens.weight.new_zeros(rows, self.settings.hidden_size)
        if isinstance(self.recurrent, MultiplicativeStack):
            return RecurrentLanguageState(self.recurrent.fresh(zeros))
        parts = 2 if self.settings.cell == "lstm" else 1
        return RecurrentLanguageState(((zeros,) * parts,) * self.settings.layers)

    def read(
        self, tokens: Tensor, state: RecurrentLanguageState
    ) -> tuple[Tensor, RecurrentLanguageState]:
        """``states`` of ``tokens [B, T]``, starting from ``state``, and the state after them."""
        embedded = self.tokens(boundary(tokens))
        if self.settings.cell != "switched":  # whose embeddings are matrices
            embedded = self.drop(embedded)
        states, hidden = self.recurrent(embedded, state.hidden)
        return self.drop(states), RecurrentLanguageState(hidden)

    def states(self, tokens: Tensor) -> Tensor:
        return self.read(tokens, self.fresh(len(tokens)))[0]

    @property
    def output_table(self) -> Tensor:
        return self.tokens.weight if self.output is None else self.output.weight

    def start(self, prompts: Tensor) -> RecurrentLanguageState:
        if prompts.dim() != 2 or not prompts.shape[1]:
            raise ValueError(f"prompts are {list(prompts.shape)}: expected [B, T], T at least 1")
        state = self.fresh(len(prompts))
        return self.read(prompts[:, :-1], state)[1] if prompts.shape[1] > 1 else state

    def step(
        self, tokens: Tensor, state: RecurrentLanguageState
    ) -> tuple[Tensor, RecurrentLanguageState]:
        states, after = self.read(tokens.unsqueeze(1), state)
        return self.logits(states.squeeze(1)), after

    def depth(self, name: str) -> int:
        """0 for the embedding, n + 1 for layer n; the output is one deeper than the last layer."""
        if name.startswith("recurrent"):
            number = re.search(r"layers\.(\d+)|_l(\d+)$", name)
            assert number is not None
            return int(number[1] or number[2]) + 1
        return 0 if name.startswith("tokens") else self.settings.layers + 1


register_model(RecurrentLanguageSettings, RecurrentLanguageModel)
