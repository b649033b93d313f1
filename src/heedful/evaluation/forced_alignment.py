"""Word alignments of given translations: attention weights under teacher forcing."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from heedful.basics.errors import UserError
from heedful.basics.notices import notice
from heedful.evaluation.statistics import check_parallel
from heedful.inference import Translator, WordAlignment
from heedful.inference.alignment import cross_modules, head_weights, rows_of, word_weights
from heedful.inference.batches import Item, source_of, target_in_of, token_batches
from heedful.models.pairs import AlignmentSource

TOO_LONG = "longer than the model's limit"

# Teacher forcing keeps the logits of all steps, so batches are as small as for this beam width.
_WIDTH = 4

Advance = Callable[[int], None]


def align_translations(
    translator: Translator,
    sources: Sequence[str],
    targets: Sequence[str],
    *,
    advance: Advance | None = None,
    left_out: Counter[str] | None = None,
) -> list[WordAlignment]:
    """Align each source with its given translation by teacher forcing.

    Pairs with an empty side have no links. Pairs longer than the model's limit have none either;
    they are counted in a notice.

    Args:
        translator: the translator whose attention is used.
        sources: texts.
        targets: the translation of each text.
        advance: called with the number of pairs finished.
        left_out: counts pairs without links by reason; if None, a notice reports them.

    Returns:
        One alignment per pair, over words separated as by ``str.split``.

    Raises:
        UserError: the numbers differ, or no model of the translator attends to its source.
    """
    check_parallel(targets, sources)
    translator.require_alignments()
    counts: Counter[str] = Counter() if left_out is None else left_out
    threshold = translator.link_threshold
    found = [
        WordAlignment(torch.zeros(len(target.split()), len(source.split())), threshold)
        for source, target in zip(sources, targets, strict=True)
    ]
    done = advance or (lambda count: None)
    with translator.ready():
        for lines, own, written in _batches(translator, sources, targets, counts):
            texts = [sources[line] for line in lines]
            forced = [targets[line] for line in lines]
            batch = source_of(own, translator.device)
            soft = translator.align(batch, own, written, texts, forced)
            for line, weights in zip(lines, soft, strict=True):
                found[line] = WordAlignment(weights, threshold)
            done(len(lines))
    if left_out is None and counts[TOO_LONG]:
        notice(
            f"{counts[TOO_LONG]:,} of {len(found):,} pairs are longer than the model's "
            f"{translator.max_length:,} tokens and have no links"
        )
    return found


def candidate_weights(
    translator: Translator, sources: Sequence[str], targets: Sequence[str]
) -> dict[AlignmentSource, list[Tensor]]:
    """The weights between words for every candidate alignment source.

    Candidates are all modules that attend from the target to the source, with each head and with
    all heads together, and with both rows of a target token (where it is predicted, and where it is
    fed in). Each batch is computed once.

    Args:
        translator: a translator with one model.
        sources: texts.
        targets: the translation of each text.

    Returns:
        Candidate → weights ``[target words, source words]`` of each pair.

    Raises:
        UserError: there are several models, or the model does not attend to its source.
    """
    if len(translator.models) > 1:
        raise UserError(
            "an alignment rule belongs to one run: choose it for each run of an ensemble separately"
        )
    (model,) = translator.models
    modules = cross_modules(model)
    if not modules:
        translator.require_alignments()
    check_parallel(targets, sources)
    found: dict[AlignmentSource, list[Tensor]] = {}
    with translator.ready():
        for lines, own, written in _batches(translator, sources, targets, Counter()):
            source = source_of(own, translator.device)
            target_in = target_in_of(written, translator.device)
            seen = head_weights(model, modules, source, target_in)
            words = [
                translator.protection.words(sources[line], targets[line], *tokens)
                for line, *tokens in zip(lines, own, written, strict=True)
            ]
            for module, weights in seen.items():
                for shift in (0, 1):
                    rows = rows_of(weights, AlignmentSource(module, None, shift))
                    for row, line in enumerate(lines):
                        soft = word_weights(rows[row], *words[row])
                        for heads, matrix in _head_choices(soft):
                            where = AlignmentSource(module, heads, shift)
                            of_pairs = found.setdefault(where, _nothing(sources, targets))
                            of_pairs[line] = matrix
    return found


def _head_choices(soft: Tensor) -> Iterator[tuple[tuple[int, ...] | None, Tensor]]:
    """All heads ``[H, words, words]`` together; then each head if there are several."""
    yield None, soft.mean(0)
    if len(soft) > 1:
        for head, matrix in enumerate(soft):
            yield (head,), matrix


def _nothing(sources: Sequence[str], targets: Sequence[str]) -> list[Tensor]:
    return [
        torch.zeros(len(target.split()), len(source.split()))
        for source, target in zip(sources, targets, strict=True)
    ]


def _batches(
    translator: Translator,
    sources: Sequence[str],
    targets: Sequence[str],
    left_out: Counter[str],
) -> Iterator[tuple[list[int], list[list[int]], list[list[int]]]]:
    """Lines with words on both sides, and their source and target tokens, batch by batch."""
    filled = [
        line
        for line, both in enumerate(zip(sources, targets, strict=True))
        if all(text.strip() for text in both)
    ]
    own, written = translator.protection.encode_pairs(
        [sources[line] for line in filled], [targets[line] for line in filled]
    )
    # The longer side determines the size of a batch.
    items = [
        Item(place, 0, max(both, key=len))
        for place, both in enumerate(zip(own, written, strict=True))
        if max(map(len, both)) < translator.max_length
    ]
    left_out[TOO_LONG] += len(filled) - len(items)
    for batch in token_batches(items, _WIDTH, translator.batch_tokens):
        places = [item.line for item in batch]
        yield (
            [filled[place] for place in places],
            [own[place] for place in places],
            [written[place] for place in places],
        )
