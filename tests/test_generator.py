"""Writing on and perplexity: against transformers, against a plain loop, and piece by piece."""

import itertools
import math
from collections import Counter
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from transformers import GPT2Config, GPT2LMHeadModel

from heedful.basics.errors import UserError
from heedful.basics.symbols import BEGIN, END, PAD, UNKNOWN
from heedful.decoding import SearchOptions
from heedful.inference.generator import Generator
from heedful.inference.perplexity import _windows
from heedful.models.gpt import Gpt, GptSettings
from heedful.models.language import LanguageModel
from heedful.models.recurrent_language import RecurrentLanguageModel, RecurrentLanguageSettings
from language_help import ByteVocabulary, Read, Recited, SmallLanguage
from test_gpt import give, gpt_of, peer_of

torch.set_num_threads(1)
GREEDY = SearchOptions(beam=1)
VOCABULARY = ByteVocabulary()


class Numbers(ByteVocabulary):
    """Tokens written as numbers, so that any token can be asked for."""

    size = 40

    def encode(self, text: str) -> list[int]:
        return [int(number) for number in text.split()]

    def decode(self, tokens: Any) -> str:
        return "".join(f" {token}" for token in tokens if token > END)

    def pieces(self, tokens: Any) -> list[str]:
        return [str(token) for token in tokens]


class Theirs(LanguageModel):
    """transformers' GPT-2 behind our contract, every step read anew."""

    def __init__(self, model: GPT2LMHeadModel) -> None:
        super().__init__()
        self.model = model
        self.max_length = model.config.n_positions

    def states(self, tokens: Tensor) -> Tensor:
        result: Tensor = self.model.transformer(tokens).last_hidden_state
        return result

    @property
    def embedding(self) -> nn.Embedding:
        return self.model.transformer.wte

    @property
    def output_table(self) -> Tensor:
        return self.model.lm_head.weight

    def start(self, prompts: Tensor) -> Read:
        return Read(prompts[:, :-1])

    def step(self, tokens: Tensor, state: Read) -> tuple[Tensor, Read]:  # type: ignore[override]
        read = torch.cat([state.tokens, tokens.unsqueeze(1)], dim=1)
        return self.logits(self.states(read)[:, -1]), Read(read)


@pytest.fixture(scope="module")
def theirs() -> GPT2LMHeadModel:
    torch.manual_seed(5)
    config = GPT2Config(
        vocab_size=40,
        n_positions=32,
        n_embd=16,
        n_layer=2,
        n_head=2,
        bos_token_id=END,
        eos_token_id=END,
        initializer_range=0.5,
    )
    return GPT2LMHeadModel(config).eval()


def asked(model: GPT2LMHeadModel, prompt: list[int], count: int, **options: Any) -> Tensor:
    """What their ``generate`` writes behind a prompt."""
    tokens = torch.tensor([prompt])
    suppressed = [PAD, UNKNOWN, BEGIN]
    found: Tensor = model.generate(
        tokens,
        attention_mask=torch.ones_like(tokens),
        max_new_tokens=count,
        suppress_tokens=suppressed,
        pad_token_id=PAD,
        eos_token_id=END,
        **options,
    )
    return found[:, len(prompt) :]


def numbers(tokens: list[int]) -> str:
    return " ".join(map(str, tokens))


# Against transformers


def test_greedy_is_theirs(theirs: GPT2LMHeadModel) -> None:
    generator = Generator(Theirs(theirs), Numbers())
    prompts = [[5, 9, 20], [7], [30, 31, 32, 33, 6]]
    ours = generator.generate_all(map(numbers, prompts), options=GREEDY, max_tokens=12)
    for prompt, (one,) in zip(prompts, ours, strict=True):
        expected = asked(theirs, prompt, 12, do_sample=False)[0].tolist()
        written = list(map(int, one.tokens)) + [END] * (one.ended == "end")
        assert written == expected


def test_beams_are_theirs_without_a_length_penalty(theirs: GPT2LMHeadModel) -> None:
    generator = Generator(Theirs(theirs), Numbers())
    options = SearchOptions(beam=4, nbest=4, length_penalty=0.0, forced_length=7)
    ours = generator.generate("5 9 20", options=options, max_tokens=7)
    expected = asked(
        theirs,
        [5, 9, 20],
        7,
        num_beams=4,
        num_return_sequences=4,
        min_new_tokens=7,
        length_penalty=0.0,
        do_sample=False,
    )
    assert [list(map(int, one.tokens)) for one in ours] == expected.tolist()


def test_our_gpt_writes_with_its_cache_what_theirs_writes() -> None:
    gpt = gpt_of(max_length=32)
    peer: Any = peer_of(gpt)
    give(gpt, peer)
    generator = Generator(gpt, Numbers())
    for prompt in ([5, 9, 20], [7]):
        [one] = generator.generate(numbers(prompt), options=GREEDY, max_tokens=12)
        expected = asked(peer, prompt, 12, do_sample=False)[0].tolist()
        assert list(map(int, one.tokens)) + [END] * (one.ended == "end") == expected
        options = SearchOptions(beam=3, nbest=3, length_penalty=0.0, forced_length=6)
        beams = generator.generate(numbers(prompt), options=options, max_tokens=6)
        found = asked(
            peer,
            prompt,
            6,
            num_beams=3,
            num_return_sequences=3,
            min_new_tokens=6,
            length_penalty=0.0,
            do_sample=False,
        )
        assert [list(map(int, one.tokens)) for one in beams] == found.tolist()


@pytest.mark.parametrize(
    ("ours", "their_options"),
    [
        ({"top_k": 3, "temperature": 0.7}, {"top_k": 3, "temperature": 0.7}),
        ({"top_p": 0.6}, {"top_p": 0.6, "top_k": 0}),
    ],
)
def test_samples_have_their_distribution(
    theirs: GPT2LMHeadModel, ours: dict[str, Any], their_options: dict[str, Any]
) -> None:
    generator = Generator(Theirs(theirs), Numbers(), batch_tokens=1 << 20)
    count = 4000
    options = SearchOptions(sample=True, nbest=count, **ours)
    drawn = Counter(one.tokens for one in generator.generate("5 9", options=options, max_tokens=1))
    torch.manual_seed(1)
    found = asked(
        theirs, [5, 9], 1, do_sample=True, num_return_sequences=count, **their_options
    ).flatten()
    expected = Counter(() if token == END else (str(token),) for token in found.tolist())
    assert set(drawn) == set(expected)
    for token, times in expected.items():
        # Four standard deviations of the difference of two draws.
        assert abs(drawn[token] - times) < 4 * math.sqrt(2 * times) + 4


# What is written


def test_many_prompts_come_back_in_order_as_each_alone() -> None:
    torch.manual_seed(2)
    generator = Generator(SmallLanguage(), VOCABULARY, batch_tokens=64)
    prompts = ["a longer prompt", "", "xy", "ab", "", "äöü"]
    for options in (GREEDY, SearchOptions(beam=3, nbest=2), SearchOptions(sample=True, nbest=2)):
        together = generator.generate_all(prompts, options=options, max_tokens=6)
        assert [one.prompt for one, *_ in together] == prompts
        for number, (prompt, found) in enumerate(zip(prompts, together, strict=True)):
            [alone] = generator.generate_all([prompt], options=options, max_tokens=6, first=number)
            assert [one.tokens for one in alone] == [one.tokens for one in found]
            assert alone[0].score == pytest.approx(found[0].score, abs=1e-4)
    drawn = generator.generate_all(["", ""], options=SearchOptions(sample=True), max_tokens=20)
    assert drawn[0][0].text != drawn[1][0].text


def test_an_empty_prompt_begins_a_document() -> None:
    torch.manual_seed(2)
    model = SmallLanguage()
    [one] = Generator(model, VOCABULARY).generate("", options=GREEDY, max_tokens=1)
    logits = model.logits(model.states(torch.tensor([[END]])))[0, -1]
    assert one.tokens == tuple(VOCABULARY.pieces([int(logits[END:].argmax()) + END]))
    [begun] = Generator(model, VOCABULARY).generate("ab", options=GREEDY, max_tokens=1, begins=True)
    after = torch.tensor([[END, *VOCABULARY.encode("ab")]])
    best = int(model.logits(model.states(after))[0, -1, END:].argmax()) + END
    assert begun.tokens == tuple(VOCABULARY.pieces([best]))


def test_who_ends_a_text_is_said_and_costs_nothing() -> None:
    generator = Generator(Recited("abc def\nghi|"), VOCABULARY)
    [whole] = generator.generate("x", options=GREEDY)
    assert (whole.text, whole.ended) == ("abc def\nghi", "end")
    [stopped] = generator.generate("x", options=GREEDY, stop=["\n", "zz"])
    assert (stopped.text, stopped.ended) == ("abc def", "stop")
    [limited] = generator.generate("x", options=GREEDY, max_tokens=4)
    assert (limited.text, limited.ended) == ("abc ", "limit")
    for one in (stopped, limited):
        assert one.log_probability == pytest.approx(sum(one.token_scores), abs=1e-9)
    assert whole.log_probability < sum(whole.token_scores)


def test_a_stop_string_in_the_prompt_or_across_its_end_does_not_stop() -> None:
    generator = Generator(Recited("\n\nab\n\ncd|"), VOCABULARY)
    [one] = generator.generate("\n", options=GREEDY, stop=["\n\n"])
    assert one.text == ""
    generator = Generator(Recited("\nab\n\ncd|"), VOCABULARY)
    [one] = generator.generate("\n", options=GREEDY, stop=["\n\n"])
    assert one.text == "\nab"


def test_beams_stop_at_stop_strings() -> None:
    torch.manual_seed(4)
    generator = Generator(SmallLanguage(), VOCABULARY)
    [free] = generator.generate("ab", options=GREEDY, max_tokens=8)
    stop = VOCABULARY.decode(VOCABULARY.encode(free.text))[2]
    options = SearchOptions(beam=3, nbest=3, length_penalty=0.0)
    for one in generator.generate("ab", options=options, max_tokens=8, stop=[stop]):
        assert stop not in one.text
        assert one.ended in ("stop", "limit", "end")


# Streaming


PARTS = ["a", "é", "☃", "𝄞", " ", "\n", "S", "STO", "STOP", "☃a"]


@given(
    text=st.lists(st.sampled_from(PARTS), min_size=1, max_size=8).map("".join),
    stop=st.lists(st.sampled_from(["STOP", "\n", "O", "☃a"]), max_size=2),
)
@settings(max_examples=80, deadline=None)
def test_a_stream_has_whole_characters_and_no_stop_string(text: str, stop: list[str]) -> None:
    pieces: list[str] = []
    generator = Generator(Recited(text + "|"), VOCABULARY)
    [one] = generator.generate("x", options=GREEDY, stop=stop, stream=pieces.append)
    # The string that is whole first ends the text, before its own beginning.
    found = [(text.find(part) + len(part), text.find(part)) for part in stop if part in text]
    assert "".join(pieces) == one.text == text[: min(found)[1] if found else len(text)]
    assert all("\ufffd" not in piece and piece for piece in pieces)


def test_a_stream_comes_while_it_is_written_and_of_beams_at_the_end() -> None:
    generator = Generator(Recited("abcd|"), VOCABULARY)
    pieces: list[str] = []
    generator.generate("x", options=GREEDY, stream=pieces.append)
    assert pieces == list("abcd")
    pieces.clear()
    generator.generate("x", options=SearchOptions(beam=2), stream=pieces.append)
    assert pieces == ["abcd"]
    with pytest.raises(UserError, match="one text"):
        generator.generate("x", options=SearchOptions(sample=True, nbest=2), stream=print)


# The context


def small_gpt() -> LanguageModel:
    return Gpt(GptSettings(layers=2, hidden_size=16, heads=2, max_length=8), 260).eval()


def small_lstm() -> LanguageModel:
    settings = RecurrentLanguageSettings(layers=1, hidden_size=12, embedding_size=12, max_length=8)
    return RecurrentLanguageModel(settings, 260).eval()


@pytest.mark.parametrize("make", [lambda: SmallLanguage(max_length=8), small_gpt, small_lstm])
def test_past_the_context_it_goes_on_from_the_last_half(make: Any) -> None:
    torch.manual_seed(3)
    model = make()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.5)
    [one] = Generator(model, VOCABULARY).generate("abc", options=GREEDY, max_tokens=20)
    tokens, read = VOCABULARY.encode("abc"), VOCABULARY.encode("abc")
    expected = []
    for _ in range(20):
        if len(read) > 8:
            read = tokens[-4:]
        logits = model.logits(model.states(torch.tensor([read])))[0, -1]
        best = int(logits[END:].argmax()) + END
        if best == END:
            break
        for part in (tokens, read, expected):
            part.append(best)
    assert len(expected) > 8
    assert list(one.tokens) == VOCABULARY.pieces(expected)


def test_a_prompt_longer_than_the_context_is_said_and_its_end_is_read() -> None:
    torch.manual_seed(3)
    said: list[str] = []
    generator = Generator(SmallLanguage(max_length=8), VOCABULARY, notify=said.append)
    cut, short = generator.generate_all(["0123456789", "345"], options=GREEDY, max_tokens=3)
    [last] = generator.generate("56789", options=GREEDY, max_tokens=3)
    assert cut[0].tokens == last.tokens
    assert short[0].prompt == "345"
    assert said == ["1 prompt was longer than the model's 8 tokens: only the last 5 are read"]


def test_wrong_calls_are_refused() -> None:
    generator = Generator(SmallLanguage(), VOCABULARY)
    for wrong in ({"max_tokens": 0}, {"stop": [""]}, {"stop": "abc"}):
        with pytest.raises(UserError):
            generator.generate("x", **wrong)  # type: ignore[arg-type]
    with pytest.raises(UserError, match=r"generate_all takes texts.*\[text\]"):
        generator.generate_all("The")
    with pytest.raises(UserError, match=r"perplexity takes texts.*\[text\]"):
        generator.perplexity("The")


# Perplexity


def plain(model: LanguageModel, text: str) -> float:
    """The log-probability of a document and its end, all at once."""
    tokens = [END, *VOCABULARY.encode(text), END]
    logits = model.logits(model.states(torch.tensor([tokens[:-1]])))[0]
    return float(logits.double().log_softmax(1).gather(1, torch.tensor(tokens[1:])[:, None]).sum())


def test_perplexity_is_the_plain_one_where_the_text_fits() -> None:
    torch.manual_seed(1)
    model = SmallLanguage(max_length=40).eval()
    texts = ["The cat\nsat.", "Ein Bär", "", "x"]
    with torch.no_grad():
        total = sum(plain(model, text) for text in texts if text)
    found = Generator(model, VOCABULARY).perplexity(texts)
    assert found.log_probability == pytest.approx(total, abs=1e-3)
    assert (found.tokens, found.words, found.lines, found.documents) == (12 + 8 + 1 + 3, 6, 1, 3)
    assert found.per_token == pytest.approx(math.exp(-total / 24), rel=1e-5)
    assert found.per_word == pytest.approx(math.exp(-total / 6), rel=1e-5)
    assert found.per_word_and_line == pytest.approx(math.exp(-total / 7), rel=1e-5)
    assert found.bits_per_byte == pytest.approx(-total / math.log(2) / 21, rel=1e-5)


@pytest.mark.parametrize("stride", [1, 3, 8])
def test_a_window_that_slides_counts_each_token_once(stride: int) -> None:
    torch.manual_seed(1)
    model = SmallLanguage(max_length=8).eval()
    text = "A text that is longer than the context."
    tokens = [END, *VOCABULARY.encode(text), END]
    total = 0.0
    with torch.no_grad():
        for place in range(1, len(tokens)):
            # The first window that reaches the place, as transformers' documentation has it.
            window = max(0, math.ceil((place - 8) / stride)) * stride
            logits = model.logits(model.states(torch.tensor([tokens[window:place]])))[0, -1]
            total += float(logits.double().log_softmax(0)[tokens[place]])
    found = Generator(model, VOCABULARY).perplexity([text], stride=stride)
    assert found.tokens == len(tokens) - 1
    assert found.log_probability == pytest.approx(total, abs=1e-3)


@given(st.integers(2, 40), st.integers(1, 12), st.data())
def test_windows_count_every_token_once(length: int, context: int, data: st.DataObject) -> None:
    stride = data.draw(st.integers(1, context))
    stream = list(range(length))
    counted = [window.tokens[-window.counted :] for window in _windows(stream, context, stride)]
    assert list(itertools.chain(*counted)) == stream[1:]


def test_joined_documents_are_one_stream() -> None:
    torch.manual_seed(1)
    model = SmallLanguage(max_length=40).eval()
    tokens = [END, *VOCABULARY.encode("ab"), END, *VOCABULARY.encode("cd"), END]
    with torch.no_grad():
        logits = model.logits(model.states(torch.tensor([tokens[:-1]])))[0].log_softmax(1)
    total = float(logits.gather(1, torch.tensor(tokens[1:])[:, None]).sum())
    found = Generator(model, VOCABULARY).perplexity(["ab", "cd"], joined=True)
    assert found.log_probability == pytest.approx(total, abs=1e-4)
    assert found.tokens == 6


def test_perplexity_says_what_is_wrong() -> None:
    generator = Generator(SmallLanguage(max_length=8), VOCABULARY)
    with pytest.raises(UserError, match="empty"):
        generator.perplexity(["", ""])
    for stride in (0, 9):
        with pytest.raises(UserError, match="stride"):
            generator.perplexity(["x"], stride=stride)
