"""Language models: generation from a prompt, and perplexity.

Shapes: B prompts, P tokens of the prompts.
"""

from collections.abc import Callable, Iterable, Sequence

import torch

from heedful.basics.errors import UserError
from heedful.basics.notices import notice
from heedful.basics.symbols import END
from heedful.data.examples import require_list
from heedful.data.vocabulary import Vocabulary
from heedful.decoding import SearchOptions
from heedful.inference.axes import Axis
from heedful.inference.generation_call import Advance, Generated, GenerationCall
from heedful.inference.inference_mode import in_precision, ready
from heedful.inference.perplexity import Perplexity, perplexity
from heedful.inference.text_generation import Stream
from heedful.inference.trace import Trace
from heedful.inference.tracing import (
    BEGIN_LABEL,
    END_LABEL,
    Decision,
    Described,
    Readout,
    labels_of,
    require_fit,
    trace_model,
)
from heedful.models.language import LanguageModel

__all__ = ["MAX_TOKENS", "Advance", "Generated", "Generator"]

MAX_TOKENS = 256
"""Default maximum number of generated tokens."""

_TRACED_TOKENS = 64


class Generator:
    """A predictor that generates text: a language model and its vocabulary.

    Args:
        model: the language model.
        vocabulary: text to tokens and back.
        device: the device of the model.
        precision: precision of matrix products: float32, bfloat16, float16, or int8, which uses an
            int8 copy of the model's current weights.
        batch_tokens: maximum number of tokens in a batch.
        options: default search settings; sampling unless given.
        notify: called with notices; by default they are printed to standard error.

    The model is in evaluation mode during a call; its mode is restored afterwards. Only one thread
    at a time may use it.
    """

    task = "language-model"

    def __init__(
        self,
        model: LanguageModel,
        vocabulary: Vocabulary,
        *,
        device: torch.device | str = "cpu",
        precision: str = "float32",
        batch_tokens: int = 8192,
        options: SearchOptions | None = None,
        notify: Callable[[str], None] = notice,
    ) -> None:
        self.parameters = sum(one.numel() for one in model.parameters())
        self.device, self.precision = torch.device(device), precision
        (self.model,), self.products = in_precision([model], precision, self.device)
        self.vocabulary = vocabulary
        self.batch_tokens = batch_tokens
        self.options = options or SearchOptions(sample=True)
        self.notify = notify
        self.max_length = model.max_length

    def generate(
        self,
        prompt: str,
        *,
        options: SearchOptions | None = None,
        max_tokens: int = MAX_TOKENS,
        stop: Sequence[str] = (),
        begins: bool = False,
        stream: Stream | None = None,
    ) -> list[Generated]:
        """Generate ``options.nbest`` continuations of ``prompt``, best first.

        Args:
            prompt: the text to continue. An empty prompt starts a new document.
            options: search settings; those of the generator by default.
            max_tokens: maximum number of generated tokens.
            stop: strings that end a text; they are not part of it.
            begins: whether the prompt is the beginning of a document, which adds a document
                boundary before it.
            stream: called with pieces of the text during generation: whole characters, without any
                that may be part of a stop string. With beam search, called once at the end.

        Raises:
            UserError: several texts are to be streamed, a stop string is empty, or ``max_tokens``
                is below 1.
        """
        chosen = options or self.options
        if stream is not None and chosen.nbest > 1:
            raise UserError(
                f"only one text can be streamed, not {chosen.nbest}; leave nbest or streaming out"
            )
        call = GenerationCall(self, chosen, max_tokens, stop, begins, stream)
        return call.write([prompt], 0, lambda count: None)[0]

    def generate_all(
        self,
        prompts: Iterable[str],
        *,
        options: SearchOptions | None = None,
        max_tokens: int = MAX_TOKENS,
        stop: Sequence[str] = (),
        begins: bool = False,
        first: int = 0,
        advance: Advance | None = None,
    ) -> list[list[Generated]]:
        """Generate continuations of each prompt, in the order of the prompts.

        As `generate`. Samples depend on the seed and on a prompt's number, not on other prompts.

        Args:
            prompts: the texts to continue.
            options: search settings; those of the generator by default.
            max_tokens: maximum number of generated tokens for each prompt.
            stop: strings that end a text; they are not part of it.
            begins: whether each prompt is the beginning of a document.
            first: the number of the first prompt, if there were earlier calls.
            advance: called with progress.

        Raises:
            UserError: ``prompts`` is a string, a stop string is empty, or ``max_tokens`` is
                below 1.
        """
        require_list(prompts, "generate_all")
        call = GenerationCall(self, options or self.options, max_tokens, stop, begins, None)
        return call.write(list(prompts), first, advance or (lambda count: None))

    def predict(self, prompts: Iterable[str]) -> list[Generated]:
        """One text for each prompt, as by :meth:`generate_all`; every predictor has this method."""
        return [texts[0] for texts in self.generate_all(prompts)]

    def trace(
        self,
        prompt: str,
        written: str | None = None,
        *,
        options: SearchOptions | None = None,
        max_tokens: int = _TRACED_TOKENS,
        begins: bool = False,
        latest: bool = False,
        relevance: bool = True,
    ) -> Trace:
        """The attention weights of the model during generation.

        Args:
            prompt: the text to continue.
            written: the continuation; by default, the model generates it. It may be empty.
            options: search settings for the continuation; greedy by default.
            max_tokens: maximum number of generated tokens.
            begins: whether the prompt is the beginning of a document.
            latest: whether to use the last tokens that fit if the text is longer than the context.
            relevance: whether to add rollout, and attention × gradient of the continuation.

        Returns:
            A trace with the axis "text": the input tokens, with ``<s>`` for the boundary before a
            document. ``decided[i]`` is the token after the i-th; after the last one, the most
            probable token.

        Raises:
            UserError: the text is empty, or longer than the model's context.
        """
        vocabulary, model = self.vocabulary, self.model
        if latest and written is not None:
            prompt, written, begins = self._last_that_fits(prompt, written, begins)
        if written is None:
            room = self.max_length - len(vocabulary.encode(prompt))
            most = max(1, min(max_tokens, room - 1))
            chosen = options or SearchOptions(beam=1)
            found = self.generate(prompt, options=chosen, max_tokens=most, begins=begins)
            written = found[0].text
        tokens, before = _joined_tokens(vocabulary, prompt, written, begins)
        require_fit("text", len(tokens), self.max_length)
        row = torch.tensor([tokens], device=self.device)

        def decide() -> Decision:
            scores = model.logits(model.states(row))[0].float().log_softmax(1)  # [L, V]
            last = int(scores[-1, END:].argmax()) + END
            decided = [*tokens[1:], last]
            at = torch.tensor(decided, device=self.device).unsqueeze(1)
            return Decision(named(decided), scores.gather(1, at).squeeze(1), tokens=decided)

        named = labels_of(vocabulary)

        labels = vocabulary.pieces(tokens)
        if tokens[0] == END:
            labels[0] = BEGIN_LABEL
        described = Described(
            prompt + written or END_LABEL,
            {"text": Axis("tokens", labels, steps=True)},
            {"text": vocabulary.word_indices(tokens)},
        )
        return trace_model(
            model,
            decide,
            described,
            ready(model, self.device, self.products),
            relevance=relevance,
            relevant_from=max(0, before - 1) if written else 0,
            readout=Readout(model.layer_states(), model.read_layer, named),
        )

    def _last_that_fits(self, prompt: str, written: str, begins: bool) -> tuple[str, str, bool]:
        """The longest end of prompt and continuation that fits into the context."""
        vocabulary, most = self.vocabulary, self.max_length
        tokens = vocabulary.encode(prompt + written)
        boundary = begins or not vocabulary.encode(prompt)
        if len(tokens) + boundary <= most:
            return prompt, written, begins
        # Decoding and encoding again may give more tokens if the first one was inside a word.
        kept = most
        while len(vocabulary.encode(vocabulary.decode(tokens[-kept:]))) > most:
            kept -= 1
        text = vocabulary.decode(tokens[-kept:])
        # The prompt must not be empty, or the text would count as the beginning of a document.
        before = max(1, len(text) - len(written))
        return text[:before], text[before:], False

    def perplexity(
        self,
        texts: Iterable[str],
        *,
        stride: int | None = None,
        joined: bool = False,
        ends: bool = True,
        advance: Advance | None = None,
    ) -> Perplexity:
        """The perplexity of ``texts``, each of which is a document.

        The first token is predicted from the document boundary. A document longer than the context
        is read in windows of the context's length, shifted by ``stride`` tokens. Each window counts
        the tokens that the previous one did not reach, so that all tokens except those of the first
        window are predicted from at least context − stride tokens.

        Args:
            texts: documents.
            stride: shift of windows in tokens, from 1 to the context; half of the context by
                default. Smaller strides cost more and give lower perplexities.
            joined: treat all documents as one stream, with a boundary between documents.
            ends: whether to predict the boundary at the end of a document, too.
            advance: called with progress.

        Raises:
            UserError: all texts are empty, or the stride is out of range.
        """
        return perplexity(self, texts, stride=stride, joined=joined, ends=ends, advance=advance)


def _joined_tokens(
    vocabulary: Vocabulary, prompt: str, written: str, begins: bool
) -> tuple[list[int], int]:
    """The tokens of prompt and continuation, and the number of tokens of the prompt, the last of
    which may depend on the continuation."""
    given, tokens = vocabulary.encode(prompt), vocabulary.encode(prompt + written)
    if begins or not given:
        given, tokens = [END, *given], [END, *tokens]
    pairs = enumerate(zip(given, tokens, strict=False))
    same = min(len(given), len(tokens))
    return tokens, next((place for place, (one, other) in pairs if one != other), same)
