"""Language models and encoders with heads on paper."""

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heedful.basics.symbols import END
from heedful.models import build_encoder, build_language_model
from heedful.models.encoders import Encoded, HeadedEncoder, Sequences
from heedful.runs.model_size import on_meta
from heedful.tasks.sketch import Sketch
from heedful.tasks.texts.part import part_of
from heedful.tasks.texts.recipe import EncoderRecipe, HeadSettings, LanguageRecipe

_LABELS = 2
"""Classes of a head whose data are not read."""
_HALF = 0.5
_AROUND = 3
"""BEGIN and the two ENDs of a row with two texts."""


def sketch_language_model(recipe: LanguageRecipe) -> Sketch:
    """The language model of a recipe."""
    vocabulary = recipe.tokeniser.vocabulary_size
    model = on_meta(lambda: build_language_model(recipe.model, vocabulary))

    def loss(rows: int, length: int) -> Tensor:
        tokens = torch.full((rows, length), END + 1)
        return _cross_entropy(model.logits(model.states(tokens)), tokens)

    return Sketch(model, loss, vocabulary, recipe.context)


def sketch_encoder(recipe: EncoderRecipe) -> Sketch:
    """The encoder of a recipe with its heads, each with two labels."""
    vocabulary, named = recipe.tokeniser.vocabulary_size, recipe.heads()

    def build() -> HeadedEncoder:
        encoder = build_encoder(recipe.model, vocabulary)
        heads: dict[str, nn.Module] = {}
        for name, head in named.items():
            heads |= part_of(head.task).layers(name, head, encoder, _LABELS, recipe)
        return HeadedEncoder(encoder, heads)

    model = on_meta(build)
    shares = [head.data.share_of_first() for head in named.values()]
    share = next((one for one in shares if one is not None), None)
    if share is None and model.encoder.needs_pairs:
        share = _HALF

    def loss(rows: int, length: int) -> Tensor:
        encoded = model.encoder(_rows(rows, length, share))
        each = [_loss_of(name, head, model.heads, encoded) for name, head in named.items()]
        return torch.stack(each).sum()

    return Sketch(model, loss, vocabulary, recipe.max_tokens)


def _rows(rows: int, length: int, share: float | None) -> Sequences:
    """Rows of ``length`` tokens, of which the first of two texts has the ``share``."""
    tokens = torch.full((rows, length), END + 1)
    segments = torch.zeros_like(tokens)
    if share is not None and (both := length - _AROUND) >= 2:
        first = min(max(1, round(share * both)), both - 1)
        segments[:, first + 2 :] = 1
    return Sequences(tokens, torch.full((rows,), length), segments)


def _loss_of(
    name: str, head: HeadSettings, heads: Mapping[str, Any] | nn.ModuleDict, encoded: Encoded
) -> Tensor:
    """The loss of a head; of masked tokens, the share that the recipe masks is predicted."""
    if head.task != "masked":
        logits = heads[name](encoded)
        return _cross_entropy(logits, torch.zeros(logits.shape[:-1], dtype=torch.long))
    assert encoded.states is not None
    rows, length, _ = encoded.states.shape
    masked = encoded.states[:, : max(1, round(head.masking.share * length))].flatten(0, 1)
    found = _cross_entropy(heads[name](masked), torch.zeros(len(masked), dtype=torch.long))
    if head.masking.next_sentence:
        logits = heads[f"{name}_next"](encoded)
        found = found + _cross_entropy(logits, torch.zeros(rows, dtype=torch.long))
    return found


def _cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(logits.flatten(0, -2), targets.flatten())
