"""Translating with real models of random weights: order, batches, limits, modes."""

import json
import random
from collections.abc import Sequence
from functools import partial
from itertools import chain
from typing import SupportsIndex

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.basics.errors import UserError
from heedful.basics.symbols import END
from heedful.data.examples import Pair
from heedful.data.tokeniser import Tokeniser, Tokenisers, TokeniserSettings
from heedful.decoding import NewSources, SearchOptions, search_loop
from heedful.decoding.beam import Beams
from heedful.evaluation.aligner import Aligner, Direction
from heedful.evaluation.forced_alignment import align_translations
from heedful.evaluation.metrics import bleu
from heedful.inference import Translation, Translator
from heedful.inference.batches import source_of, target_in_of
from heedful.inference.line_windows import windows
from heedful.inference.splitting import split_text
from heedful.models.pairs import PairModel
from heedful.models.recurrent import RecurrentEncoderDecoder, RecurrentSettings
from heedful.models.transformer import Transformer, TransformerSettings

WORDS = ["the", "a", "cat", "dog", "sat", "on", "mat", "red", "house", "with", "small", "tree"]


def sentences(count: int, seed: int = 1) -> list[str]:
    chance = random.Random(seed)
    return [" ".join(chance.choices(WORDS, k=chance.randint(1, 12))) + "." for _ in range(count)]


def tokenisers() -> Tokenisers:
    options = TokeniserSettings(vocabulary_size=380)
    one = Tokeniser.train(sentences(200), options, seed=1, where="the test")
    return Tokenisers(one, one)


TOKENISERS = tokenisers()


def transformer(seed: int = 1, max_length: int = 64, **options: object) -> Transformer:
    torch.manual_seed(seed)
    shape = {
        "layers": 2,
        "hidden_size": 32,
        "ffn_size": 64,
        "heads": 2,
        "max_length": max_length,
        **options,
    }
    model = Transformer(TransformerSettings.model_validate(shape), 380, 380)
    with torch.no_grad():
        model.target_embedding.weight.mul_(3)  # sharper, so that near ties are rare
    return model


def recurrent(attention: str) -> RecurrentEncoderDecoder:
    torch.manual_seed(1)
    settings = RecurrentSettings.model_validate(
        {"embedding_size": 24, "hidden_size": 24, "attention": attention, "max_length": 64}
    )
    return RecurrentEncoderDecoder(settings, 380, 380)


MODELS = {
    "transformer": transformer,
    "none": lambda: recurrent("none"),
    "bahdanau": lambda: recurrent("bahdanau"),
    "luong-general": lambda: recurrent("luong-general"),
}


class Heard(Translator):
    """A translator whose notices can be read."""

    def __init__(self, model: PairModel, batch_tokens: int) -> None:
        self.notices: list[str] = []
        super().__init__([model], TOKENISERS, batch_tokens=batch_tokens, notify=self.notices.append)


def translator(model: PairModel | None = None, batch_tokens: int = 8192) -> Heard:
    return Heard(transformer() if model is None else model, batch_tokens)


def texts_of(translations: Sequence[Translation]) -> list[str]:
    return [one.text for one in translations]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("beam", [1, 3])
def test_batch_size_and_order_change_scores_only_by_rounding(name: str, beam: int) -> None:
    model = MODELS[name]()
    lines = sentences(24)
    options = SearchOptions(beam=beam)
    together = translator(model).translate(lines, options=options)
    alone = translator(model, batch_tokens=1).translate(lines, options=options)
    backwards = translator(model).translate(lines[::-1], options=options)[::-1]
    for other in (alone, backwards):
        for one, two in zip(together, other, strict=True):
            assert one.score == pytest.approx(two.score, abs=1e-4)
        same = sum(a == b for a, b in zip(texts_of(together), texts_of(other), strict=True))
        assert same >= len(lines) - 1
    assert [one.source for one in together] == lines


def test_beam_one_equals_greedy_for_a_real_model() -> None:
    model = transformer().eval()
    sources = TOKENISERS.source.encode_batch(sentences(16))
    source = source_of(sources, torch.device("cpu"))
    for forced in (None, 9):
        options = SearchOptions(beam=1, forced_length=forced)
        with torch.inference_mode():
            lengths = (2 * source.lengths + 20).clamp(max=model.max_length)
            once = iter([NewSources(source, lengths, range(16))])
            steps = search_loop.run(model, partial(Beams, options), partial(next, once, None))
            beam = [own for _, own in sorted(chain.from_iterable(steps))]
            _, greedy, _ = translator(model).search(sources, options, range(16))
        assert [one[0].tokens for one in beam] == [one[0].tokens for one in greedy]


def test_empty_lines_stay_and_need_no_model() -> None:
    lines = ["", "the cat", "  \t", "a dog", "\u3000"]
    made = translator()
    found = texts_of(made.translate(lines))
    assert [found[0], found[2], found[4]] == ["", "  \t", "\u3000"]
    assert found[1]
    assert found[3]
    made.models = ()  # nothing is left to call
    assert texts_of(Translator.translate(made, ["", " "])) == ["", " "]
    assert made.translate([]) == []


def test_streams_keep_order_over_windows() -> None:
    lines = sentences(11)
    made = translator()
    whole = made.translate(lines)
    parts = [one for window in made.translate_windows(windows([lines], size=4)) for one in window]
    assert texts_of(parts) == texts_of(whole)
    assert list(windows([["a"], ["b", "c", "d"]], size=2, more_waits=lambda: False)) == [
        ["a"],
        ["b", "c"],
        ["d"],
    ]


def test_models_are_left_in_the_mode_that_they_were_in() -> None:
    model = transformer(dropout=0.5).train()
    model.encoder[0].eval()
    modes = [part.training for part in model.modules()]
    first = translator(model).translate(sentences(4))
    second = translator(model).translate(sentences(4))
    assert texts_of(first) == texts_of(second)  # no dropout
    assert [part.training for part in model.modules()] == modes
    assert torch.is_grad_enabled()


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("options", [{"beam": 1}, {"beam": 4, "nbest": 4}, {"sample": True}])
def test_scores_are_those_of_teacher_forcing(name: str, options: dict[str, object]) -> None:
    made = translator(MODELS[name]())
    chosen = SearchOptions.model_validate({**options, "length_penalty": 0.0})
    with made.ready():
        sources = TOKENISERS.source.encode_batch(sentences(6))
        _, found, _ = made.search(sources, chosen, range(6))
        for tokens, hypotheses in zip(sources, found, strict=True):
            for one in hypotheses:
                source = source_of([tokens], torch.device("cpu"))
                target_in = target_in_of([one.tokens], torch.device("cpu"))
                logits = made.models[0].teacher_force(source, target_in)[0]
                written = torch.tensor([*one.tokens, END]).unsqueeze(1)
                wanted = logits.log_softmax(1).gather(1, written).squeeze(1)
                assert one.token_log_probabilities == pytest.approx(wanted.tolist(), abs=1e-3)
                assert one.score == pytest.approx(float(wanted.sum()), abs=1e-3)


def test_translations_hold_what_was_asked_for() -> None:
    for one in translator().translate(sentences(6), options=SearchOptions(beam=4, nbest=4)):
        assert len(one.alternatives) == 3
        scores = [one.score, *(other.score for other in one.alternatives)]
        assert scores == sorted(scores, reverse=True)
        assert len(one.tokens) == len(one.token_scores)
        assert one.alignment is None
        assert json.loads(json.dumps(one.to_json()))["text"] == one.text


def test_samples_depend_on_seed_and_line_and_not_on_the_batch() -> None:
    lines = ["the cat sat on the mat."] * 6
    options = SearchOptions(sample=True, seed=7)
    together = texts_of(translator().translate(lines, options=options))
    alone = texts_of(translator(batch_tokens=1).translate(lines, options=options))
    other = texts_of(translator().translate(lines, options=options.model_copy(update={"seed": 8})))
    assert together == alone
    assert together != other
    assert len(set(together)) > 1


def test_an_ensemble_of_a_model_with_itself_is_that_model() -> None:
    model = transformer()
    twice = Translator([model, model], TOKENISERS, notify=lambda text: None)
    lines = sentences(8)
    single = translator(model).translate(lines, alignments=True)
    double = twice.translate(lines, alignments=True)
    assert texts_of(single) == texts_of(double)
    for one, two in zip(single, double, strict=True):
        assert one.score == pytest.approx(two.score, abs=1e-4)
        assert torch.allclose(one.alignment.soft, two.alignment.soft, atol=1e-5)


def test_long_lines_are_split_said_once_and_joined() -> None:
    made = translator(transformer(max_length=24))
    long = " ".join(sentences(20))
    found = made.translate([long, "a cat", long], alignments=True)
    assert [one.parts > 1 for one in found] == [True, False, True]
    assert found[0].text == found[2].text
    assert len([text for text in made.notices if "in parts" in text]) == 1
    assert any("2 texts were longer" in text for text in made.notices)
    one = found[0]
    assert len(one.tokens) == len(one.token_scores)
    assert one.alignment.soft.shape == (len(one.text.split()), len(long.split()))


def test_a_long_line_is_the_same_as_its_sentences() -> None:
    made = translator(transformer(max_length=16))
    lines = sentences(40, seed=3)
    lines = [line for line in lines if 10 < len(TOKENISERS.source.encode(line)) < 16]
    joined = made.translate([" ".join(lines[:3])])[0]
    apart = made.translate(lines[:3])
    assert joined.parts == 3
    assert joined.text == " ".join(texts_of(apart))
    assert joined.log_probability == pytest.approx(
        sum(one.log_probability for one in apart), abs=1e-3
    )


def count_characters(texts: Sequence[str]) -> list[int]:
    return [len(text.encode()) for text in texts]


@settings(max_examples=200, deadline=None)
@given(
    text=st.text(alphabet="ab .,。，!?\n\u0301é\u200d", min_size=1, max_size=80),
    limit=st.integers(8, 30),
)
def test_parts_join_to_the_text_and_fit(text: str, limit: int) -> None:
    parts = split_text(text, count_characters, limit)
    assert "".join(part.before + part.text for part in parts) == text
    if text.strip():
        assert all(size <= limit for size in count_characters([part.text for part in parts]))


def test_splitting_copies_a_text_once() -> None:
    class Watched(str):
        copied = 0

        def __getitem__(self, place: SupportsIndex | slice) -> str:
            part = super().__getitem__(place)
            Watched.copied += len(part)
            return part

    text = Watched("Yes. " * 1_000 + "  ")
    parts = split_text(text, count_characters, 100)
    assert "".join(part.before + part.text for part in parts) == text
    assert Watched.copied == len(text)


def test_cuts_prefer_sentences_then_punctuation_then_spaces() -> None:
    def cut(text: str, limit: int) -> list[str]:
        return [part.text for part in split_text(text, count_characters, limit)]

    assert cut("One. Two two, three. Four", 17) == ["One.", "Two two, three.", "Four"]
    assert cut("One two, three four.", 12) == ["One two,", "three four."]
    assert cut("one two three", 8) == ["one two", "three"]
    assert cut("abcdefgh", 3) == ["abc", "def", "gh"]
    assert cut("他来了。她走了。", 12) == ["他来了。", "她走了。"]


def test_a_text_of_white_space_and_one_long_word_is_translated() -> None:
    made = translator(transformer(max_length=16))
    found = made.translate(["x" * 100, "  " + "ab " * 60 + "  "], alignments=True)
    assert all(one.parts > 1 for one in found)
    assert found[0].alignment.soft.shape[1] == 1  # cuts within a word make no new words
    assert found[1].alignment.soft.shape[1] == 60


def test_lone_surrogates_are_the_users_error() -> None:
    with pytest.raises(UserError, match="surrogate"):
        translator().translate(["good", "bad \ud800"])


def test_progress_counts_every_line_once() -> None:
    done: list[int] = []
    made = translator(transformer(max_length=24), batch_tokens=64)
    made.translate(["", *sentences(9), " ".join(sentences(9))], advance=done.append)
    assert sum(done) == 11


def test_encoded_batches_hold_every_pair_that_fits_once() -> None:
    made = translator(transformer(max_length=24), batch_tokens=64)
    lines = sentences(30)
    pairs = [Pair(line, line[::-1]) for line in [*lines, "", "x" * 30]]
    found = []
    for sources, targets in [*made.encoded_batches(pairs), *made.encoded_batches(pairs)]:
        assert len(sources) * max(len(one) + 1 for one in [*sources, *targets]) <= 64
        found += list(zip(sources, targets, strict=True))
    encode = TOKENISERS.source.encode
    wanted = [(encode(pair.source), encode(pair.target)) for pair in pairs]
    fitting = [pair for pair in wanted if max(map(len, pair)) < 24]
    assert 0 < len(fitting) < len(pairs)
    assert sorted(found) == sorted(fitting * 2)
    assert len(made.notices) == 1


def test_one_text_is_not_translated_by_character() -> None:
    for call in (translator().translate, translator().translate_stream):
        with pytest.raises(UserError, match=r"takes texts; give a list, \[text\] if it is one"):
            call("The cat.")  # before anything is translated


def test_one_pair_is_not_aligned_by_character() -> None:
    pair = Pair("the cat", "the dog")
    turned = Aligner([Direction(translator(), turned=True)])
    for wrong in (pair, "the cat"):
        with pytest.raises(UserError, match=r"align takes a list of pairs; give \[pair\]"):
            turned.align(wrong)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="takes texts; give a list"):
        align_translations(translator(), "the cat", "the dog")
    with pytest.raises(UserError, match="takes texts; give a list"):
        bleu("the cat", "the dog")
