"""Traces of language models: what each token that is written rests on.

Shapes: L tokens, V vocabulary.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from heedful.attention import watch
from heedful.basics.errors import UserError
from heedful.basics.symbols import END
from heedful.data.vocabulary import Vocabulary
from heedful.decoding import SearchOptions
from heedful.inference.generator import Generator
from heedful.inference.readiness import ready
from heedful.inference.reading_trace import watched_maps
from heedful.inference.relevance import rollout, weights_times_gradient
from heedful.inference.trace import Trace
from heedful.inference.tracing import BEGIN_LABEL, END_LABEL

_TRACED_TOKENS = 64


def trace_writing(
    generator: Generator,
    prompt: str,
    written: str | None = None,
    *,
    options: SearchOptions | None = None,
    max_tokens: int = _TRACED_TOKENS,
    begins: bool = False,
    relevance: bool = True,
) -> Trace:
    """What a language model attends to while it writes.

    Args:
        generator: what writes.
        prompt: what stands before.
        written: what follows it; what the model writes unless given, nothing if empty.
        options: how to write it.
        max_tokens: the most tokens written.
        begins: whether the prompt is the beginning of a document.
        relevance: whether to add rollout, and attention × gradient of what follows the prompt.

    Returns:
        The axis "text": the tokens as they are fed in, ``<s>`` for the boundary before a document;
        ``decided[i]`` is what followed the i-th, after the last one the likeliest token.

    Raises:
        UserError: there is nothing to look at, or more than the model's context.
    """
    vocabulary, model, device = generator.vocabulary, generator.model, generator.device
    if written is None:
        written = _written(generator, prompt, options, max_tokens, begins)
    tokens, before = _tokens(vocabulary, prompt, written, begins)
    if len(tokens) > generator.max_length:
        raise UserError(
            f"the text has {len(tokens):,} tokens, more than the model's {generator.max_length:,}; "
            "give a shorter text"
        )
    row = torch.tensor([tokens], device=device)

    def log_probabilities() -> tuple[Tensor, Tensor]:
        scores = model.logits(model.states(row))[0].float().log_softmax(1)  # [L, V]
        last = int(scores[-1, END:].argmax()) + END
        decided = torch.tensor([*tokens[1:], last], device=device)
        return decided, scores.gather(1, decided.unsqueeze(1)).squeeze(1)

    axes_of = model.attention_axes()
    with ready(model, device, generator.products), watch(model, axes_of) as seen:
        decided, chosen = log_probabilities()
        maps = watched_maps(axes_of, seen)
    trace = Trace(
        axes={"text": _labels(vocabulary, tokens)},
        maps=maps,
        decided=[
            END_LABEL if token == END else piece
            for token, piece in zip(
                decided.tolist(), vocabulary.pieces(decided.tolist()), strict=True
            )
        ],
        log_probabilities=chosen.tolist(),
        title=prompt + written or END_LABEL,
        words={"text": vocabulary.word_indices(tokens)},
    )
    if relevance:
        first = max(0, before - 1) if written else 0
        gradients = weights_times_gradient(model, lambda: log_probabilities()[1][first:].sum())
        trace = replace(trace, maps=[*maps, *rollout(trace), *gradients])
    trace._check()
    return trace


def _written(
    generator: Generator,
    prompt: str,
    options: SearchOptions | None,
    max_tokens: int,
    begins: bool,
) -> str:
    """What the model writes, as far as the context takes it; greedily unless said otherwise."""
    room = generator.max_length - len(generator.vocabulary.encode(prompt))
    most = max(1, min(max_tokens, room - 1))
    chosen = options or SearchOptions(beam=1)
    found = generator.generate(prompt, options=chosen, max_tokens=most, begins=begins)
    return found[0].text


def _tokens(
    vocabulary: Vocabulary, prompt: str, written: str, begins: bool
) -> tuple[list[int], int]:
    """The tokens of both, and how many are the prompt's: what follows may change its last ones."""
    given, tokens = vocabulary.encode(prompt), vocabulary.encode(prompt + written)
    if begins or not given:
        given, tokens = [END, *given], [END, *tokens]
    pairs = enumerate(zip(given, tokens, strict=False))
    same = min(len(given), len(tokens))
    return tokens, next((place for place, (one, other) in pairs if one != other), same)


def _labels(vocabulary: Vocabulary, tokens: Sequence[int]) -> list[str]:
    labels = vocabulary.pieces(tokens)
    if tokens[0] == END:
        labels[0] = BEGIN_LABEL
    return labels


def last_that_fits(
    generator: Generator, prompt: str, written: str, begins: bool
) -> tuple[str, str, bool]:
    """As much of the end of both as fits into the model; all, unless it is too long."""
    vocabulary, most = generator.vocabulary, generator.max_length
    tokens = vocabulary.encode(prompt + written)
    boundary = begins or not vocabulary.encode(prompt)
    if len(tokens) + boundary <= most:
        return prompt, written, begins
    # Its end as text may be of more tokens than its last ones, if these began inside a word.
    kept = most
    while len(vocabulary.encode(vocabulary.decode(tokens[-kept:]))) > most:
        kept -= 1
    text = vocabulary.decode(tokens[-kept:])
    # Something has to stand before, or a document would seem to begin here.
    before = max(1, len(text) - len(written))
    return text[:before], text[before:], False
