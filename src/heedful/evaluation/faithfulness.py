"""Faithfulness of attention: the effect of removing the most attended source words.

Attention is a part of the computation, not an explanation of the output (Jain and Wallace 2019;
Wiegreffe and Pinter 2019). For a single sentence, you can measure how much less probable the output
is without the words that it attended to most (comprehensiveness, DeYoung et al. 2020, section 4),
compared with randomly chosen words.

Shapes: B versions of a source, S source tokens, T target tokens.
"""

import random
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from math import comb
from typing import Any

import torch
from torch import Tensor

from heedful.basics.cancellation import check_cancelled
from heedful.basics.errors import UserError
from heedful.basics.symbols import END
from heedful.inference import Translator
from heedful.inference.batches import source_of, target_in_of

SHARE = 0.2
"""Share of the source's words that is removed; at least one word."""
DRAWS = 20


@dataclass(frozen=True)
class Faithfulness:
    """The fall of the output's log-probability, in nats, if source words are removed."""

    dropped: tuple[str, ...]
    """The most attended words, in the order of the text."""
    attended: float
    """log p(output | source) − log p(output | source without them)."""
    random: float
    """The mean of the same over random choices of the same number of words."""
    random_spread: float
    """The standard deviation over the random choices; 0 for a single one."""
    draws: int
    """Number of random choices; all possible choices if there are few."""
    higher: int
    """Number of random choices with a fall at least as large as that of the most attended words."""

    def to_json(self) -> dict[str, Any]:
        """A JSON object: the fields, and the number of removed ``words``."""
        return {**asdict(self), "dropped": list(self.dropped), "words": len(self.dropped)}


def faithfulness(
    translator: Translator,
    source: str,
    target: str | None = None,
    *,
    share: float = SHARE,
    draws: int = DRAWS,
    seed: int = 1,
) -> Faithfulness:
    """Measure one sentence.

    Args:
        translator: its model must attend to the source; for an ensemble, all members count.
        source: at least two words (separated as by `str.split`).
        target: the output; the translator's own translation if None.
        share: share of the words to remove, in (0, 1).
        draws: maximum number of random choices.
        seed: of the random choices.

    Raises:
        UserError: the source has fewer than two words or is too long, the output is empty or too
            long, the model does not attend to its source, or there is only an engine.
    """
    translator.require_model()
    translator.require_alignments()
    if not all(model.generates for model in translator.models):
        raise UserError("faithfulness needs a run that translates; this run aligns words")
    words = source.split()
    if len(words) < 2:
        raise UserError("faithfulness needs a source of at least two words")
    if target is None:
        options = translator.options.model_copy(update={"nbest": 1})
        target = translator.translate([source], options=options)[0].text
    if not target.strip():
        raise UserError("faithfulness needs an output, but this one is empty")
    count = max(1, round(share * len(words)))
    attended = _most_attended(translator, source, target, len(words), count)
    choices = _choices(len(words), count, draws, seed)
    falls = _falls(translator, words, target, [attended, *choices])
    return Faithfulness(
        dropped=tuple(words[i] for i in attended),
        attended=falls[0],
        random=statistics.fmean(falls[1:]),
        random_spread=statistics.stdev(falls[1:]) if len(choices) > 1 else 0.0,
        draws=len(choices),
        higher=sum(fall >= falls[0] for fall in falls[1:]),
    )


def _most_attended(
    translator: Translator, source: str, target: str, words: int, count: int
) -> tuple[int, ...]:
    """The words with the largest total weights over all words of the output, in text order."""
    own, written = _encoded(translator, source, target)
    with translator.ready():
        batch = source_of([own], translator.device)
        weights = translator.align(batch, [own], [written], [source], [target])[
            0
        ]  # [target words, source words]
    sums = torch.zeros(words)
    sums[: weights.shape[1]] = weights.sum(0)
    return tuple(sorted(sums.topk(count).indices.tolist()))


def _choices(words: int, count: int, draws: int, seed: int) -> list[tuple[int, ...]]:
    """Different choices of ``count`` words: all of them, or ``draws`` random ones."""
    if comb(words, count) <= draws:
        return list(combinations(range(words), count))
    generator, found = random.Random(seed), set[tuple[int, ...]]()
    while len(found) < draws:
        found.add(tuple(sorted(generator.sample(range(words), count))))
    return sorted(found)


def _falls(
    translator: Translator, words: Sequence[str], target: str, choices: Sequence[Sequence[int]]
) -> list[float]:
    """The fall of the output's log-probability for each choice of removed words."""
    written = translator.tokenisers.target.encode(target)
    versions = [
        " ".join(word for i, word in enumerate(words) if i not in set(left_out))
        for left_out in choices
    ]
    encoded = translator.tokenisers.source.encode_batch([" ".join(words), *versions])
    # All versions join words by single spaces, so that only the words differ.
    # The logits of all versions at once would have versions × tokens × vocabulary elements.
    count = max(1, translator.batch_tokens // (max(len(written), *map(len, encoded)) + 1))
    found = []
    with translator.ready():
        for start in range(0, len(encoded), count):
            check_cancelled()
            found.append(_log_probabilities(translator, encoded[start : start + count], written))
    total = torch.cat(found)
    return (total[0] - total[1:]).tolist()


def _log_probabilities(
    translator: Translator, sources: Sequence[Sequence[int]], written: Sequence[int]
) -> Tensor:
    """log p(output | source) for each source ``[B]``; for an ensemble, of mean probabilities."""
    batch = source_of(sources, translator.device)
    target_in = target_in_of([written] * len(sources), translator.device)
    members = (
        torch.stack(
            [
                model.teacher_force(batch, target_in).float().log_softmax(-1)
                for model in translator.models
            ]
        ).logsumexp(0)
        - torch.tensor(float(len(translator.models))).log()
    )  # [B, T, V]
    decided = torch.tensor([*written, END], device=members.device)
    index = decided.expand(len(sources), -1).unsqueeze(2)
    return members.gather(2, index).squeeze(2).double().sum(1).cpu()


def _encoded(translator: Translator, source: str, target: str) -> tuple[list[int], list[int]]:
    (own,), (written,) = translator.protection.encode_pairs([source], [target])
    longest, limit = max(len(own), len(written)), translator.max_length
    if longest >= limit:
        raise UserError(f"a text has {longest:,} tokens, more than the model's {limit - 1:,}")
    return own, written
