"""One call of a language model's generator: batches of prompts, search, and the texts.

Shapes: B prompts, P tokens of the prompts.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

from heedful.basics.errors import UserError
from heedful.basics.symbols import END, UNKNOWN
from heedful.decoding import Hypothesis, SearchOptions, search
from heedful.inference.batches import Item
from heedful.inference.inference_mode import ready
from heedful.inference.perplexity import LanguagePredictor
from heedful.inference.text_generation import PromptDecodable, Stream, following, until_stop

Advance = Callable[[int], None]
"""Called with the number of prompts that were finished since the last call."""


@dataclass(frozen=True)
class Generated:
    """One generated text."""

    prompt: str
    text: str
    """The continuation, without the prompt and without the stop string that ended it."""
    tokens: tuple[str, ...]
    """The generated tokens, including those of a stop string."""
    token_scores: tuple[float, ...]
    """Natural logarithm of each token's probability."""
    log_probability: float
    """The sum of the token scores, plus that of END if the model ended the text."""
    score: float
    """Log-probability divided by the length penalty."""
    ended: Literal["end", "stop", "limit"]
    """What ended the text: the model, a stop string, or the maximum number of tokens."""

    def to_json(self) -> dict[str, Any]:
        """A JSON object; its fields are described in docs/texts.md."""
        return {
            "prompt": self.prompt,
            "text": self.text,
            "score": self.score,
            "log_probability": self.log_probability,
            "tokens": list(self.tokens),
            "token_scores": list(self.token_scores),
            "ended": self.ended,
        }


class GenerationCall:
    """The arguments of one call of the generator."""

    def __init__(
        self,
        generator: LanguagePredictor,
        options: SearchOptions,
        max_tokens: int,
        stop: Sequence[str],
        begins: bool,
        stream: Stream | None,
    ) -> None:
        if max_tokens < 1:
            raise UserError(f"max_tokens must be at least 1, not {max_tokens}")
        if isinstance(stop, str) or not all(stop):
            raise UserError("stop must be a list of strings that are not empty")
        self.generator, self.options, self.begins = generator, options, begins
        self.max_tokens, self.stop, self.stream = max_tokens, tuple(stop), stream

    def write(self, prompts: Sequence[str], first: int, advance: Advance) -> list[list[Generated]]:
        """The continuations of each prompt."""
        items = self._items(prompts)
        found: dict[int, list[Generated]] = {}
        with ready(self.generator.model, self.generator.device, self.generator.products):
            for batch in self._batches(items):
                keys = [first + item.line for item in batch]
                for item, written in zip(batch, self._batch(batch, keys), strict=True):
                    found[item.line] = [
                        self._generated(prompts[item.line], item.tokens, one) for one in written
                    ]
                advance(len(batch))
        return [found[line] for line in range(len(prompts))]

    def _items(self, prompts: Sequence[str]) -> list[Item]:
        """The tokens of the prompts, as many as fit into the context."""
        generator = self.generator
        context = generator.max_length
        # At least half of the context, and more if the continuation leaves room.
        kept = max(1, context // 2, context - self.max_tokens)
        items, cut, unknown = [], 0, 0
        for line, tokens in enumerate(generator.vocabulary.encode_batch(list(prompts))):
            whole = [END, *tokens] if self.begins or not tokens else tokens
            unknown += UNKNOWN in tokens
            cut += len(whole) > context
            items.append(Item(line, 0, whole[-kept:] if len(whole) > context else whole))
        if cut:
            generator.notify(
                f"{_prompts(cut)} longer than the model's {context:,} tokens: only the last "
                f"{kept:,} are read"
            )
        if unknown:
            generator.notify(f"{_prompts(unknown)} not all in the model's vocabulary")
        return items

    def _batches(self, items: Sequence[Item]) -> list[list[Item]]:
        """Batches of prompts of one length."""
        batches: list[list[Item]] = []
        for item in sorted(items, key=lambda item: (-len(item.tokens), item.line)):
            same = batches and len(batches[-1][0].tokens) == len(item.tokens)
            rows = (len(batches[-1]) + 1 if same else 1) * self.options.width
            tokens = rows * (len(item.tokens) + self.max_tokens)
            if same and tokens <= self.generator.batch_tokens:
                batches[-1].append(item)
            else:
                batches.append([item])
        return batches

    def _batch(self, batch: Sequence[Item], keys: Sequence[int]) -> list[list[Hypothesis]]:
        generator, rows = self.generator, len(batch)
        searched = not self.options.sample and self.options.beam > 1
        writer = PromptDecodable(
            generator.model,
            generator.vocabulary,
            max_tokens=self.max_tokens,
            stop=self.stop,
            stream=None if searched else self.stream,
        )
        prompts = torch.tensor([item.tokens for item in batch], device=generator.device)
        # One more step than tokens, in which END is forced.
        limits = torch.full((rows,), self.max_tokens + 1, device=generator.device)
        found = search(
            writer,
            prompts,
            rows=rows,
            options=self.options,
            max_lengths=limits,
            keys=keys,
        )
        if self.stream is not None:
            writer.stream = self.stream
            writer.flush(self._text(batch[0].tokens, found[0][0]))
        return found

    def _text(self, read: Sequence[int], one: Hypothesis) -> str:
        return until_stop(following(self.generator.vocabulary, read, one.tokens), self.stop)

    def _generated(self, prompt: str, read: Sequence[int], one: Hypothesis) -> Generated:
        vocabulary = self.generator.vocabulary
        text = self._text(read, one)
        ended: Literal["end", "stop", "limit"] = "end"
        if text != following(vocabulary, read, one.tokens):
            ended = "stop"
        elif len(one.tokens) >= self.max_tokens or self.options.forced_length is not None:
            ended = "limit"
        return Generated(
            prompt=prompt,
            text=text,
            tokens=tuple(vocabulary.pieces(one.tokens)),
            token_scores=one.token_log_probabilities[: len(one.tokens)],
            log_probability=one.log_probability,
            score=one.score,
            ended=ended,
        )


def _prompts(count: int) -> str:
    return f"{count:,} prompt{'s were' if count > 1 else ' was'}"
