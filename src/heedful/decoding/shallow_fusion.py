"""Shallow fusion: a decodable whose probabilities are multiplied by those of a language model.

    p(y_t) ∝ p_model(y_t) · p_language(y_t)^β

Gulcehre et al. 2015, "On Using Monolingual Corpora in Neural Machine Translation", section 4.1,
equation 5; here normalized at each step. Shapes: B sources, N rows, V vocabulary.
"""

from dataclasses import dataclass, replace
from typing import Any, Generic, Self

import torch
from torch import Tensor

from heedful.basics.symbols import BEGIN, END
from heedful.decoding.decodable import Decodable, SourceT_contra, State


@dataclass(frozen=True)
class FusedState:
    """The states of the model and of the language model, which starts at the first step."""

    model: State
    language: State | None

    def select(self, rows: Tensor) -> Self:
        """The state of ``rows [M]``, in this order."""
        language = None if self.language is None else self.language.select(rows)
        return replace(self, model=self.model.select(rows), language=language)


class ShallowFusion(Generic[SourceT_contra]):
    """A model and a language model, searched as one.

    Args:
        model: the model.
        language: the language model: its sources are prompts ``[B, 1]``, and END begins a text.
        tokens: the language model's token for each token of the model ``[V]``.
        weight: β, at least 0.

    Raises:
        ValueError: the weight is negative.
    """

    def __init__(
        self,
        model: Decodable[SourceT_contra, Any],
        language: Decodable[Tensor, Any],
        tokens: Tensor,
        weight: float,
    ) -> None:
        if weight < 0:
            raise ValueError(f"the weight of a language model must be at least 0, not {weight}")
        self.model, self.language, self.weight = model, language, weight
        self.tokens = tokens.clone()
        self.tokens[BEGIN] = END

    def start(self, source: SourceT_contra) -> FusedState:
        """The state before the first step."""
        return FusedState(self.model.start(source), None)

    def step(self, tokens: Tensor, state: FusedState) -> tuple[Tensor, FusedState]:
        """Logarithms ``[N, V]`` of the products, and the new states."""
        logits, model = self.model.step(tokens, state.model)
        given = self.tokens[tokens]
        before = state.language
        if before is None:
            before = self.language.start(given[:, None])
        further, language = self.language.step(given, before)
        likely = further.float().log_softmax(1)[:, self.tokens]
        fused = logits.float().log_softmax(1) + self.weight * likely
        return torch.log_softmax(fused, 1), FusedState(model, language)
