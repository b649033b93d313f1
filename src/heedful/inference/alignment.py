"""Word alignments from attention: the weights of a forced-decoding pass over the finished output.

Shapes: B batch, H heads, S source tokens with END, T target tokens with BEGIN.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from heedful.attention import watch
from heedful.basics.errors import UserError
from heedful.models.pairs import AlignmentSource, PairModel, Source


class AlignmentRule(NamedTuple):
    """How word links are read from a model's attention."""

    where: AlignmentSource
    """The module, its heads, and the row of a target token."""
    threshold: float | None = None
    """A word is linked to every source word with at least this weight; if None, to the source word
    with the largest weight."""

    def describe(self) -> str:
        """The rule in words."""
        module, heads, shift = self.where
        chosen = (
            "all heads"
            if heads is None
            else f"head{'s' * (len(heads) > 1)} " + " and ".join(str(head + 1) for head in heads)
        )
        row = "fed in" if shift else "predicted"
        links = "heaviest word" if self.threshold is None else f"weight ≥ {self.threshold:g}"
        return f"{module}, {chosen}, where a word is {row}, {links}"


def default_rule(model: PairModel) -> AlignmentRule | None:
    """The default rule of a model; None if it does not attend to its source."""
    where = model.alignment
    return None if where is None else AlignmentRule(where, model.link_threshold)


def cross_modules(model: PairModel) -> list[str]:
    """The names of the attention modules whose queries are the target's and keys the source's."""
    axes = model.attention_axes()
    return [name for name, of in axes.items() if of == ("target", "source")]


def token_weights(
    model: PairModel, where: AlignmentSource, source: Source, target_in: Tensor
) -> Tensor:
    """Weights ``[B, T - 1, S]`` of each target token, averaged over the heads, on the CPU.

    Raises:
        UserError: the module has no such head.
    """
    weights = head_weights(model, [where.module], source, target_in)[where.module]
    return rows_of(weights, where).mean(1)


def ensemble_weights(
    models: Sequence[PairModel],
    rules: Sequence[AlignmentRule | None],
    source: Source,
    target_in: Tensor,
) -> Tensor:
    """The mean ``[B, T - 1, S]`` of the :func:`token_weights` of the models that have a rule."""
    members = [
        token_weights(model, rule.where, source, target_in)
        for model, rule in zip(models, rules, strict=True)
        if rule is not None
    ]
    return torch.stack(members).mean(0)


def head_weights(
    model: PairModel, modules: Sequence[str], source: Source, target_in: Tensor
) -> dict[str, Tensor]:
    """Weights ``[B, H, T, S]`` of each module, from one pass, on the CPU."""
    with watch(model, modules) as seen:
        model.states(source, target_in)
    # A Transformer computes all positions in one call, a recurrent decoder one per call.
    return {name: torch.cat(seen[name], dim=2).float().cpu() for name in modules}


def rows_of(weights: Tensor, where: AlignmentSource) -> Tensor:
    """The chosen heads' rows ``[B, h, T - 1, S]`` of the target tokens, from ``[B, H, T, S]``.

    Raises:
        UserError: there is no such head.
    """
    heads = weights.shape[1]
    if where.heads is not None:
        if max(where.heads) >= heads:
            raise UserError(
                f"{where.module} has {heads} head{'s' * (heads > 1)}, so none with the index "
                f"{max(where.heads)}, which the alignment rule names"
            )
        weights = weights[:, list(where.heads)]
    # There is one row more than target tokens: first that of BEGIN, or last that which predicts
    # END.
    return weights[:, :, where.shift : weights.shape[2] - 1 + where.shift]


def word_weights(
    weights: Tensor, source_words: Sequence[int], target_words: Sequence[int]
) -> Tensor:
    """Weights between words: summed over a source word's tokens, averaged over a target word's.

    Args:
        weights: between tokens ``[.., T, S]``; rows and columns beyond the words' tokens are
            dropped.
        source_words: for each source token the index of its word, -1 if it has none.
        target_words: the same for target tokens.

    Returns:
        Weights ``[.., target words, source words]``. The weights of END are dropped.
    """
    weights = weights[..., : len(target_words), : len(source_words)]
    to_source = _membership(source_words)  # [source words, S]
    to_target = _membership(target_words)  # [target words, T]
    counts = to_target.sum(1, keepdim=True).clamp(min=1)
    return (to_target / counts) @ weights @ to_source.T


def join(
    soft: Sequence[Tensor], source_starts: Sequence[int], target_starts: Sequence[int]
) -> Tensor:
    """One matrix from those of consecutive parts, each placed at the index of its first words.

    A word that was split between two parts gets the mean of both rows.
    """
    bottom = max(start + len(part) for start, part in zip(target_starts, soft, strict=True))
    right = max(start + part.shape[1] for start, part in zip(source_starts, soft, strict=True))
    joined = torch.zeros(bottom, right)
    shares = torch.zeros(bottom, 1)
    for part, column, row in zip(soft, source_starts, target_starts, strict=True):
        joined[row : row + len(part), column : column + part.shape[1]] += part
        shares[row : row + len(part)] += 1
    return joined / shares.clamp(min=1)


def _membership(words: Sequence[int]) -> Tensor:
    """``[words, tokens]``: 1 where a token belongs to a word."""
    found = torch.zeros(max(words, default=-1) + 1, len(words))
    for token, word in enumerate(words):
        if word >= 0:
            found[word, token] = 1
    return found
