"""Making a trace: one text and its translation through the model, every attention watched.

Shapes: B = 1, H heads, Q queries, K keys, T target tokens with BEGIN.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch

from heedful.attention import watch
from heedful.basics.cancelling import check_cancelled
from heedful.basics.errors import UserError
from heedful.basics.symbols import END
from heedful.decoding import SearchOptions
from heedful.inference.batches import source_of, target_in_of
from heedful.inference.relevance import attention_times_gradient, rollout
from heedful.inference.searcher import Searcher
from heedful.inference.trace import AttentionMap, Trace

END_LABEL = "</s>"
BEGIN_LABEL = "<s>"


def make_trace(
    translator: Searcher,
    source_text: str,
    target_text: str | None = None,
    *,
    options: SearchOptions | None = None,
    relevance: bool = False,
) -> Trace:
    """What the translator's model attends to while it writes one output.

    Args:
        translator: of one model, or an ensemble, whose first model is watched.
        source_text: what is translated.
        target_text: the output; what the translator writes, unless given.
        options: how to search for the output.
        relevance: whether to add what is made from the weights: rollout, and attention times
            gradient (:mod:`heedful.inference.relevance`).

    Returns:
        Axes "source" (its tokens and the end symbol) and "target" (the begin symbol and its
        tokens, as they are fed in), and the weights of every attention module over them.

    Raises:
        UserError: a text is empty or longer than the model's limit.
    """
    tokenisers = translator.tokenisers
    source_tokens = tokenisers.source.encode(source_text)
    _check(source_text, source_tokens, "source", translator.max_length)
    model = translator.model
    with translator.ready():
        if target_text is None:
            (found,) = translator.find([source_tokens], options or translator.options, [0])
            target_tokens = list(found.hypotheses[0].tokens)
        else:
            target_tokens = tokenisers.target.encode(target_text)
            _check(target_text, target_tokens, "target", translator.max_length)
        source = source_of([source_tokens], translator.device)
        target_in = target_in_of([target_tokens], translator.device)  # [1, T]
        axes_of = model.attention_axes()
        check_cancelled()
        with watch(model, axes_of) as seen:
            logits = model.teacher_force(source, target_in)[0]  # [T, V]
        decided = torch.tensor([*target_tokens, END], device=logits.device)
        log_probs = logits.float().log_softmax(1).gather(1, decided.unsqueeze(1)).squeeze(1)
        maps = [
            AttentionMap(name, *axes, torch.cat(seen[name], dim=2)[0].float().cpu())
            for name, axes in axes_of.items()
        ]
    pieces = tokenisers.target.pieces(target_tokens)
    rule = translator.rules[0]
    trace = Trace(
        axes={
            "source": [*tokenisers.source.pieces(source_tokens), END_LABEL],
            "target": [BEGIN_LABEL, *pieces],
        },
        maps=maps,
        decided=[*pieces, END_LABEL],
        log_probabilities=log_probs.tolist(),
        title=source_text,
        words={
            "source": [*tokenisers.source.word_indices(source_tokens), -1],
            "target": [-1, *tokenisers.target.word_indices(target_tokens)],
        },
        alignment=None if rule is None else rule.where,
    )
    if not relevance:
        return trace
    gradients = attention_times_gradient(translator, source_tokens, target_tokens)
    return replace(trace, maps=[*trace.maps, *rollout(trace), *gradients])


def _check(text: str, tokens: Sequence[int], side: str, limit: int) -> None:
    if not text.strip():
        raise UserError(f"the {side} is empty; give a text to look at")
    if len(tokens) >= limit:
        raise UserError(
            f"the {side} has {len(tokens):,} tokens, more than the model's {limit - 1:,}; "
            "give a shorter text"
        )
