"""Reads the words of sentences with an encoder or a language model: weights and states by word.

Attention to a word is the sum over its tokens, attention from a word the mean over its tokens
(Clark et al. 2019, "What Does BERT Look At?", section 4.1). The state of a word is the mean over
its tokens.
Shapes: B sentences, N heads of all layers, S layers with the embeddings, L tokens, W words,
D width.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from heedful.attention import watch
from heedful.basics.errors import UserError
from heedful.basics.notices import notice
from heedful.basics.symbols import END
from heedful.data.vocabularies import encode_words
from heedful.data.vocabulary import Vocabulary
from heedful.inference.batches import Item, padded, token_batches
from heedful.inference.inference_mode import ready
from heedful.inference.sliding_windows import count_phrase
from heedful.layers.transformer import EncoderLayer
from heedful.models.encoders import HeadedEncoder, Sequences, sequences_of
from heedful.models.language import LanguageModel
from heedful.models.language_encoder import LanguageEncoder

BOUNDARY = -1
"""The word of BEGIN and END."""
_BATCH_TOKENS = 2048


class WordRow(NamedTuple):
    """A sentence as a model reads it."""

    tokens: list[int]
    """Without BEGIN and END."""
    words: list[int]
    """The index of the word of each token that the model reads; :data:`BOUNDARY` for others."""


class WordReader:
    """Reads sentences with the Transformer of a predictor for single texts.

    Args:
        predictor: a tagger, a classifier, a predictor of masked tokens, or a text generator.

    Raises:
        UserError: the predictor's model is another one, or has no self-attention of a text.
    """

    def __init__(self, predictor: Any) -> None:
        model = getattr(predictor, "model", None)
        if not isinstance(model, HeadedEncoder | LanguageModel):
            raise UserError(
                "this study needs the run of an encoder of single texts, such as a BERT, or of a "
                "language model, such as a GPT"
            )
        inside = model.encoder if isinstance(model, HeadedEncoder) else model
        self.model: Any = inside.writer if isinstance(inside, LanguageEncoder) else inside
        self.causal = isinstance(self.model, LanguageModel)
        self.vocabulary: Vocabulary = predictor.vocabulary
        self.device: torch.device = predictor.device
        axes = self.model.attention_axes()
        self.modules = [name for name, own in axes.items() if own[:2] == ("text", "text")]
        if not self.modules:
            raise UserError("this model has no self-attention of a text")

    def row(self, words: Sequence[str]) -> WordRow:
        """The tokens of a sentence, and the word of each; a word has at least one token."""
        tokens, firsts = encode_words(self.vocabulary, words)
        starts = [_with_space(self.vocabulary, tokens, first) for first in firsts]
        starts[0] = 0
        own = [
            BOUNDARY,
            *(sum(place >= start for start in starts) - 1 for place in range(len(tokens))),
        ]
        return WordRow(tokens, own if self.causal else [*own, BOUNDARY])

    def rows(self, sentences: Sequence[Sequence[str]], use: str) -> dict[int, WordRow]:
        """The rows of the sentences that fit into the model, by index; a notice counts the others.

        Args:
            sentences: the words of each sentence; none is empty.
            use: what the others are left out of, for the notice.
        """
        all_rows = {index: self.row(words) for index, words in enumerate(sentences)}
        fitting = {
            index: row for index, row in all_rows.items() if len(row.words) <= self.model.max_length
        }
        if len(fitting) < len(all_rows):
            notice(
                f"{count_phrase(len(all_rows) - len(fitting), 'sentence')} left out of {use}: "
                f"longer than the model's {self.model.max_length:,} tokens"
            )
        return fitting

    def parts(self, words: Sequence[str]) -> list[list[str]]:
        """A sentence as parts that fit into the model, halved as often as necessary.

        A single word that does not fit is a part of its own.
        """
        if len(words) < 2 or len(self.row(words).words) <= self.model.max_length:
            return [list(words)] if words else []
        middle = len(words) // 2
        return [*self.parts(words[:middle]), *self.parts(words[middle:])]

    def weights(self, rows: dict[int, WordRow]) -> Iterator[tuple[int, Tensor]]:
        """The weights ``[N, L, L]`` of each row, BEGIN and END included, with the row's index.

        Heads are in the order of :meth:`heads`. The order of the rows is that of their lengths.
        """
        for batch in self._batches(rows):
            with ready(self.model, self.device), watch(self.model, self.modules) as seen:
                self._run([rows[index].tokens for index in batch])
            calls = [one for name in self.modules for one in seen[name]]
            joined = torch.cat(calls, dim=1).cpu()  # [B, N, L, L]
            for place, index in enumerate(batch):
                length = len(rows[index].words)
                yield index, joined[place, :, :length, :length]

    def heads(self) -> list[str]:
        """``layer.head`` of each head, both counted from 1."""
        with ready(self.model, self.device), watch(self.model, self.modules) as seen:
            self._run([[END]])
        calls = [one for name in self.modules for one in seen[name]]
        return [
            f"{layer}.{head}"
            for layer, one in enumerate(calls, start=1)
            for head in range(1, one.shape[1] + 1)
        ]

    def states(self, rows: dict[int, WordRow]) -> Iterator[tuple[int, Tensor]]:
        """The states ``[S, W, D]`` of each row's words, with the row's index.

        The first are those before the first layer, the others those after each layer.

        Raises:
            UserError: the layers of the model are not those of a Transformer.
        """
        for batch in self._batches(rows):
            seen: list[Tensor] = []
            with ready(self.model, self.device), ExitStack() as stack:
                for layer in self._layers():
                    stack.callback(layer.register_forward_hook(_keeping(seen)).remove)
                self._run([rows[index].tokens for index in batch])
            joined = torch.stack(seen, dim=1).cpu()  # [B, S, L, D]
            for place, index in enumerate(batch):
                own = joined[place, :, : len(rows[index].words)]
                yield index, _means(rows[index].words, own) @ own

    def _layers(self) -> list[nn.Module]:
        names = [name.rpartition(".")[0] for name in self.modules]
        layers: list[nn.Module] = [self.model.get_submodule(name) for name in names]
        if not all(isinstance(layer, EncoderLayer) for layer in layers):
            raise UserError(
                "the states of this model's layers are not known; give the run of a Transformer "
                "such as a BERT or a GPT"
            )
        return layers

    def _batches(self, rows: dict[int, WordRow]) -> Iterator[list[int]]:
        items = [Item(index, 0, row.tokens) for index, row in rows.items()]
        for batch in token_batches(items, 1, _BATCH_TOKENS):
            yield [item.line for item in batch]

    def _run(self, tokens: list[list[int]]) -> None:
        if self.causal:
            self.model.states(padded([[END, *own] for own in tokens], self.device))
        else:
            self.model(Sequences(*(part.to(self.device) for part in sequences_of(tokens))))


def word_weights(weights: Tensor, words: Sequence[int]) -> Tensor:
    """Weights between words ``[N, W, W]`` from those between tokens ``[N, L, L]``.

    Args:
        weights: of each head.
        words: the index of each token's word, or :data:`BOUNDARY`.

    Example:
        >>> word_weights(torch.tensor([[[0.2, 0.8], [0.4, 0.6]]]), [0, 0])
        tensor([[[1.]]])
        >>> word_weights(torch.eye(3)[None], [BOUNDARY, 0, 1])
        tensor([[[1., 0.],
                 [0., 1.]]])
    """
    means = _means(words, weights)
    return means @ weights @ (means > 0).to(weights).T


def _means(words: Sequence[int], like: Tensor) -> Tensor:
    """The matrix ``[W, L]`` that averages the tokens of each word."""
    member = torch.tensor(words) == torch.arange(max(words) + 1).unsqueeze(1)
    return member.to(like) / member.sum(1, keepdim=True)


def _with_space(vocabulary: Vocabulary, tokens: Sequence[int], first: int) -> int:
    """The index of the first token of a word, with the tokens of white space before it."""
    while first and not vocabulary.decode([tokens[first - 1]]).strip():
        first -= 1
    return first


def _keeping(seen: list[Tensor]) -> Any:
    """A hook that keeps the input of the first call and the outputs of all calls."""

    def keep(module: nn.Module, given: tuple[Any, ...], output: Tensor) -> None:
        if not seen:
            seen.append(given[0].detach())
        seen.append(output.detach())

    return keep
