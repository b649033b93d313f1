"""Language models and encoders with heads on paper."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heedful.basics.symbols import END
from heedful.models import EncoderSettings, LanguageModel, build_encoder, build_language_model
from heedful.models.encoders import Encoded, HeadedEncoder, Sequences
from heedful.tasks.sketch import Sketch
from heedful.tasks.texts.part import part_of
from heedful.tasks.texts.recipe import EncoderRecipe, LanguageRecipe

_HALF = 0.5
_AROUND = 3
"""BEGIN and the two ENDs of a row with two texts."""
_SPACE, _FULL_STOP = END + 2, END + 3
"""The tokens between words of characters, and between sentences."""
_WORD, _SENTENCE = 6, 20
"""Characters of a word with the space after it; tokens of a sentence."""


@dataclass(frozen=True)
class SketchedHead:
    """A head of a model on paper, and made rows."""

    name: str
    settings: Any
    model: HeadedEncoder
    rows: Sequences
    encode: Callable[[], Encoded]
    """The encoder's output for the rows, computed once for all heads that use it."""

    @property
    def layer(self) -> Any:
        """The layer of the head."""
        return self.model.heads[self.name]

    def chosen(self, share: float) -> int:
        """A share of the tokens of a row, at least one."""
        return max(1, round(share * self.rows.tokens.shape[1]))


def sketch_language_model(recipe: LanguageRecipe) -> Sketch:
    """The language model of a recipe."""
    vocabulary = recipe.tokeniser.vocabulary_size

    def build() -> LanguageModel:
        return build_language_model(recipe.model, vocabulary)

    def loss(model: LanguageModel, rows: int, length: int) -> Tensor:
        tokens = torch.full((rows, length), END + 1)
        return cross_entropy(model.logits(model.states(tokens)), tokens)

    return Sketch(build, loss, vocabulary, recipe.context)


def sketch_encoder(recipe: EncoderRecipe) -> Sketch:
    """The encoder of a recipe with its heads."""
    vocabulary, named = recipe.tokeniser.vocabulary_size, recipe.heads()

    def build() -> HeadedEncoder:
        encoder = build_encoder(
            recipe.model, vocabulary, sentence_ends=[_FULL_STOP], separators=[_SPACE]
        )
        heads: dict[str, nn.Module] = {}
        for name, head in named.items():
            heads |= part_of(head.task).layers(name, head, encoder, head.paper_labels, recipe)
        return HeadedEncoder(encoder, heads)

    shares = [head.data.share_of_first() for head in named.values()]
    share = next((one for one in shares if one is not None), None)
    if share is None and recipe.model.needs_pairs:
        share = _HALF

    def loss(model: HeadedEncoder, rows: int, length: int) -> Tensor:
        made = _divided(_rows(rows, length, share), recipe.model)
        encode = functools.cache(lambda: model.encoder(made))
        each = [
            part_of(head.task).paper_loss(SketchedHead(name, head, model, made, encode))
            for name, head in named.items()
        ]
        return torch.stack(each).sum()

    return Sketch(build, loss, vocabulary, recipe.max_tokens)


def _rows(rows: int, length: int, share: float | None) -> Sequences:
    """Rows of ``length`` tokens, of which the first of two texts has the ``share``."""
    tokens = torch.full((rows, length), END + 1)
    segments = torch.zeros_like(tokens)
    if share is not None and (both := length - _AROUND) >= 2:
        first = min(max(1, round(share * both)), both - 1)
        segments[:, first + 2 :] = 1
    return Sequences(tokens, torch.full((rows,), length), segments)


def _divided(rows: Sequences, model: EncoderSettings) -> Sequences:
    """Rows with words or sentences, for a model that makes vectors of these."""
    tokens = rows.tokens
    if model.reads_words:
        tokens[:, _WORD - 1 :: _WORD] = _SPACE
    if model.reads_sentences:
        tokens[:, _SENTENCE - 1 :: _SENTENCE] = _FULL_STOP
    return rows


def loss_of_labels(head: SketchedHead) -> Tensor:
    """The cross-entropy of the layer's outputs."""
    logits: Tensor = head.layer(head.encode())
    return cross_entropy(logits, torch.zeros(logits.shape[:-1], dtype=torch.long))


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """The mean over all targets ``[..]`` of logits ``[.., V]``."""
    return F.cross_entropy(logits.flatten(0, -2), targets.flatten())
