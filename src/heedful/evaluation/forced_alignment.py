"""Word alignments of given translations: what a model attends to when made to write them."""

from collections.abc import Callable, Sequence

import torch

from heedful.basics.errors import UserError
from heedful.basics.notices import notice
from heedful.evaluation.statistics import check_parallel
from heedful.inference import Translator, WordAlignment
from heedful.inference.batches import Item, source_of, token_batches

# Teacher forcing keeps logits of all steps, so that batches are filled as for a beam of this width.
_WIDTH = 4


def align_translations(
    translator: Translator,
    sources: Sequence[str],
    targets: Sequence[str],
    *,
    advance: Callable[[int], None] | None = None,
) -> list[WordAlignment]:
    """Align each source with its given translation by teacher forcing.

    Pairs with an empty side have no links. Those longer than the model's limit have none either,
    which is counted and said.

    Args:
        translator: whose attention is read.
        sources: texts.
        targets: a translation of each.
        advance: told how many pairs were finished.

    Returns:
        One alignment a pair, over words as ``str.split`` gives them.

    Raises:
        UserError: the counts differ, or no model of the translator attends to its source.
    """
    check_parallel(targets, sources)
    if all(model.alignment is None for model in translator.models):
        raise UserError("this model has no attention to its source, so there are no alignments")
    tokenisers = translator.tokenisers
    source_tokens = [tokenisers.source.encode(text) for text in sources]
    target_tokens = [tokenisers.target.encode(text) for text in targets]
    found: list[WordAlignment] = [
        WordAlignment(torch.zeros(len(target.split()), len(source.split())))
        for source, target in zip(sources, targets, strict=True)
    ]
    filled = [line for line, alignment in enumerate(found) if alignment.soft.numel()]
    fitting = [
        line
        for line in filled
        if max(len(source_tokens[line]), len(target_tokens[line])) < translator.max_length
    ]
    if len(fitting) < len(filled):
        notice(
            f"{len(filled) - len(fitting)} of {len(found)} pairs are longer than the model's "
            f"{translator.max_length:,} tokens: left without links"
        )
    items = [Item(line, 0, source_tokens[line]) for line in fitting]
    if advance is not None:
        advance(len(found) - len(items))
    with translator.ready():
        for batch in token_batches(items, _WIDTH, translator.batch_tokens):
            own = [item.tokens for item in batch]
            written = [target_tokens[item.line] for item in batch]
            source = source_of(own, translator.device)
            soft = translator.align(source, own, written)
            for item, weights in zip(batch, soft, strict=True):
                found[item.line] = WordAlignment(weights)
            if advance is not None:
                advance(len(batch))
    return found
