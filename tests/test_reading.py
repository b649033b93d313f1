"""Classifying, tagging, filling in, and looking at why: on small encoders; one has learnt."""

import copy
import itertools
import json
import math
import random
from functools import cache
from pathlib import Path
from typing import cast

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from heedful.basics.errors import UserError
from heedful.basics.symbols import END
from heedful.data.examples import Tagged
from heedful.data.vocabularies import VocabularySettings, encode_words, train_vocabulary
from heedful.data.vocabulary import Vocabulary
from heedful.decoding import SearchOptions
from heedful.inference import Axis, Trace
from heedful.inference.classifier import Classifier
from heedful.inference.explaining import Reason, explain
from heedful.inference.fill_mask import FillMask
from heedful.inference.generator import Generator
from heedful.inference.sliding_windows import spans
from heedful.inference.tagger import Tagger
from heedful.inference.text_reader import Text
from heedful.models import build_encoder
from heedful.models.bert import Bert, BertSettings, MaskedHead
from heedful.models.decomposable import DecomposableSettings
from heedful.models.encoders import Classifier as ClassifierHead
from heedful.models.encoders import HeadedEncoder, sequences_of
from heedful.models.encoders import Tagger as TaggerHead
from heedful.models.gpt import Gpt, GptSettings
from heedful.models.hierarchical import HierarchicalSettings
from heedful.models.recurrent_encoder import RecurrentEncoderSettings
from heedful.tasks.classification.command import _words as words_shown
from heedful.tasks.texts.rows import RowBatches
from heedful.tasks.texts.training import TaggingTask
from heedful.viewing.page import export_html
from heedful.viewing.trace_encoding import map_bytes, summary
from test_interop_tokenisers import in_ours, made

torch.set_num_threads(1)
WORDS = ["the", "film", "was", "very", "long", "and", "loud", "we", "saw", "it"]
LABELS = ["good", "bad"]
TAGS = ["DET", "NOUN", "VERB"]


def texts(count: int, seed: int = 1) -> list[str]:
    chance = random.Random(seed)
    return [
        " ".join([*chance.choices(WORDS, k=chance.randint(2, 7)), chance.choice(LABELS)])
        for _ in range(count)
    ]


@cache
def vocabulary(kind: str = "words") -> Vocabulary:
    size = 400 if kind == "bpe" else 60
    settings = VocabularySettings.model_validate(
        {"kind": kind, "vocabulary_size": size, "mask": True}
    )
    return train_vocabulary(lambda: iter(texts(60)), settings, seed=1, where="the test")


def headed(
    kind: str = "words", max_length: int = 24, dim: int = 16, layers: int = 2
) -> HeadedEncoder:
    torch.manual_seed(3)
    settings = BertSettings(
        layers=layers, hidden_size=dim, heads=2, ffn_size=32, max_length=max_length
    )
    bert = Bert(settings, vocabulary(kind).size)
    heads = {
        "classification": ClassifierHead(dim, 2, 0.1),
        "tagging": TaggerHead(dim, 3, 0.1),
        "masked": MaskedHead(bert),
    }
    model = HeadedEncoder(bert, heads)
    for parameter in model.parameters():  # of 0.02 nothing would come out clearly
        if parameter.ndim == 2:
            nn.init.normal_(parameter, std=0.3)
    return model.eval()


@cache
def learnt() -> Classifier:
    """Which word decides is known: "good" or "bad", somewhere in the text, or none."""
    torch.manual_seed(3)
    bert = Bert(BertSettings(layers=2, hidden_size=16, heads=2, ffn_size=32, dropout=0.0), 60)
    model = HeadedEncoder(bert, {"classification": ClassifierHead(16, 3, 0.0)})
    for parameter in model.parameters():
        if parameter.ndim == 2:
            nn.init.normal_(parameter, std=0.1)
    optimiser = torch.optim.Adam(model.parameters(), lr=5e-3)
    chance = random.Random(5)
    for step in range(200):
        batch = [text.split() for text in texts(32, step)]
        for text in batch[::3]:
            text.pop()
        for text in batch:
            chance.shuffle(text)
        classes = [2 - ("bad" in text) - 2 * ("good" in text) for text in batch]
        rows = sequences_of([vocabulary().encode(" ".join(text)) for text in batch])
        logits = model.heads["classification"](model.encoder(rows))
        loss = F.cross_entropy(logits, torch.tensor(classes))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return Classifier(model.eval(), vocabulary(), [*LABELS, "neither"])


def other(kind: str, **settings: object) -> HeadedEncoder:
    """An encoder that is no Transformer."""
    torch.manual_seed(2)
    kinds = {
        "pooled": RecurrentEncoderSettings,
        "compared": DecomposableSettings,
        "hierarchical": HierarchicalSettings,
    }
    made = kinds[kind].model_validate({"embedding_size": 8, "dropout": 0.0, **settings})
    encoder = build_encoder(made, 60, vocabulary().encode("and"))
    assert encoder.pooled_dim is not None
    head = ClassifierHead(encoder.pooled_dim, 2, 0.0)
    nn.init.normal_(head.output.weight)
    return HeadedEncoder(encoder, {"classification": head}).eval()


def classifier(model: HeadedEncoder | None = None, **more: object) -> Classifier:
    return Classifier(model or headed(), vocabulary(), LABELS, **more)  # type: ignore[arg-type]


# Windows


@given(st.integers(1, 200), st.integers(2, 30), st.data())
def test_windows_cover_all_and_are_few(length: int, limit: int, data: st.DataObject) -> None:
    overlap = data.draw(st.integers(0, limit - 1))
    found = spans(length, limit, overlap)
    assert found[0][0] == 0
    assert found[-1][1] == length
    assert all(end - start == min(limit, length) for start, end in found)
    for (_, end), (start, _) in itertools.pairwise(found):
        assert end - start >= overlap
    assert len(found) == 1 or (len(found) - 2) * (limit - overlap) + limit < length


# Classifying


def by_hand(model: HeadedEncoder, first: list[int], second: list[int] | None = None) -> Tensor:
    rows = sequences_of([first], None if second is None else [second])
    with torch.no_grad():
        logits: Tensor = model.heads["classification"](model.encoder(rows))[0]
    return logits.softmax(0)


def test_many_come_back_in_order_as_each_alone() -> None:
    model, words = headed(), vocabulary()
    given: list[Text] = [*texts(9), "", ("the film", "it was long"), "  ", ("", "x")]
    said: list[str] = []
    found = classifier(model, batch_tokens=40, notify=said.append).classify(given)
    assert len(found) == len(given)
    for text, one in zip(given, found, strict=True):
        if isinstance(text, str) and text.strip():
            expected = by_hand(model, words.encode(text))
        elif text and text[0].strip():
            expected = by_hand(model, words.encode(text[0]), words.encode(text[1]))
        else:
            assert (one.label, one.windows) == (None, 0)
            continue
        assert list(one.probabilities.values()) == pytest.approx(expected.tolist(), abs=1e-5)
        assert one.label == LABELS[int(expected.argmax())]
        assert one.probability == max(one.probabilities.values())
    assert said == ["3 texts were empty and got no label"]


def test_a_long_text_is_the_mean_of_its_windows_and_that_is_said() -> None:
    model, words = headed(max_length=10), vocabulary()
    text = " ".join(WORDS + WORDS[:9])
    tokens = words.encode(text)
    said: list[str] = []
    [one, _] = classifier(model, notify=said.append).classify([text, "it was"])
    parts = [tokens[start : start + 8] for start in (0, 5, 11)]
    mean = torch.stack([by_hand(model, part) for part in parts]).mean(0)
    assert one.windows == 3
    assert list(one.probabilities.values()) == pytest.approx(mean.tolist(), abs=1e-5)
    assert len(said) == 1
    assert said[0].startswith("1 text was longer than the model's 10 tokens: read in windows")


def test_of_a_long_pair_every_part_is_read_with_the_other() -> None:
    model, words = headed(max_length=13), vocabulary()  # room for 10
    short, long = words.encode("the film"), words.encode(" ".join(WORDS))
    one = classifier(model).classify([("the film", " ".join(WORDS))])[0]
    mean = torch.stack([by_hand(model, short, part) for part in (long[:8], long[2:])]).mean(0)
    assert list(one.probabilities.values()) == pytest.approx(mean.tolist(), abs=1e-5)
    both = classifier(model).classify([(" ".join(WORDS), " ".join(WORDS))])[0]
    assert both.windows == 4


def test_pairs_and_texts_are_not_mixed_up() -> None:
    with pytest.raises(UserError, match="pairs"):
        classifier(pairs=True).classify(["one"])
    with pytest.raises(UserError, match="single"):
        classifier(pairs=False).classify([("one", "two")])
    with pytest.raises(UserError, match="pairs"):
        classifier(other("compared", hidden_size=8, ffn_size=8)).classify(["one"])
    with pytest.raises(ValueError, match="unknown head 'other'"):
        classifier(head="other")


def test_it_is_left_as_it_was() -> None:
    model = headed().train()
    classifier(model).classify(["the film"])
    explain(classifier(model), "the film")
    assert all(part.training for part in model.modules())
    assert all(one.grad is None for one in model.parameters())


# Why


def test_the_word_that_decides_is_found() -> None:
    reader = learnt()
    found = reader.classify(texts(40, 999))
    assert [one.label for one in found] == [text.split()[-1] for text in texts(40, 999)]
    attended = 0
    for text in texts(60, 998):
        why = explain(reader, text)
        assert [one.word for one in why.words] == text.split()
        total = sum(map(share_of, why.words))
        assert total == pytest.approx(1.0, abs=1e-5) or total == 0  # where nothing speaks for it
        attended += max(why.words, key=share_of).word == why.classification.label
        assert max(why.words, key=lambda one: one.fall).word == why.classification.label
    # Chance would have 12, with a standard deviation of 3: what is attended to is a hint.
    assert attended >= 25


def share_of(one: Reason) -> float:
    assert one.share is not None
    return one.share


def test_how_far_the_probability_falls_is_that_without_the_word() -> None:
    reader = classifier(headed())
    for text, without in (
        ("the film was long", ["film was long", "the was long", "the film long", "the film was"]),
        (("it was", "loud"), [("was", "loud"), ("it", "loud"), None]),
    ):
        why = explain(reader, text)  # type: ignore[arg-type]
        label = why.classification.label or ""
        for one, other in zip(why.words, without, strict=True):
            if other is None:  # without it nothing is left to read there
                rows = sequences_of([vocabulary().encode("it was")], [[]])
                with torch.no_grad():
                    logits = reader.model.heads["classification"](reader.model.encoder(rows))
                left = float(logits[0].softmax(0)[LABELS.index(label)])
            else:
                left = reader.classify([other])[0].probabilities[label]  # type: ignore[list-item]
            assert one.fall == pytest.approx(why.classification.probability - left, abs=1e-5)


@pytest.mark.parametrize("kind", ["words", "bpe"])
def test_a_trace_has_the_weights_and_goes_through_a_file_and_the_views(
    kind: str, tmp_path: Path
) -> None:
    model, own = headed(kind), vocabulary(kind)
    reader = Classifier(model, own, LABELS)
    trace = reader.trace("the film was long", label="bad")
    pieces = own.pieces(own.encode("the film was long"))
    assert {name: axis.labels for name, axis in trace.axes.items()} == {
        "text": ["<s>", *pieces, "</s>"],
        "decision": ["bad"],
    }
    assert trace.words["text"] == [-1, *own.word_indices(own.encode("the film was long")), -1]
    expected = by_hand(model, own.encode("the film was long"))[1].log()
    assert trace.log_probabilities == pytest.approx([float(expected)], abs=1e-5)
    for layer in range(2):
        weights = trace[f"encoder.layers.{layer}.self_attention"].weights
        assert weights.sum(2).allclose(torch.ones(2, len(pieces) + 2), atol=1e-5)
    rolled = trace["rollout of text"].weights
    assert torch.equal(trace["rollout of decision to text"].weights[:, 0], rolled[:, 0])
    check_views(trace, tmp_path)


def check_views(trace: Trace, folder: Path) -> None:
    """A saved trace is the same, and is shown by what shows any trace."""
    trace.save(folder / "trace.safetensors")
    again = Trace.load(folder / "trace.safetensors")
    assert (again.axes, again.decided, again.words) == (trace.axes, trace.decided, trace.words)
    for one, other in zip(again.maps, trace.maps, strict=True):
        assert one.name == other.name
        assert torch.equal(one.weights, other.weights)
    facts = summary(again)
    json.dumps(facts, allow_nan=False)
    for index, one in enumerate(facts["maps"]):
        assert len(map_bytes(again, index)) == one["heads"] * one["queries"] * one["keys"]
    export_html([again], folder / "view.html")
    assert (folder / "view.html").stat().st_size > 10_000


def test_gradients_are_those_of_the_chosen_class() -> None:
    """With two classes, what speaks for one speaks against the other."""
    reader = classifier(headed())
    good, bad = (reader.trace("it was long", label=label) for label in LABELS)
    name = "encoder.layers.1.self_attention × gradient"
    assert float(good[name].weights.max()) > 0
    assert float((good[name].weights * bad[name].weights).abs().max()) == 0.0


def test_what_a_label_rests_on_is_followed_through_the_layers() -> None:
    trace = classifier(headed()).trace("the film was long")
    first, second = (
        trace[f"encoder.layers.{layer}.self_attention × gradient"].weights.mean(0)
        for layer in range(2)
    )
    # Straight from each layer, and from the second by way of the first.
    expected = first[0] + second[0] + second[0] @ first
    found = trace["decision × gradient to text"].weights[0, 0]
    assert found.tolist() == pytest.approx(expected.tolist(), abs=1e-6)


def test_a_pooling_is_traced_by_its_hops_and_the_words_are_its_columns(tmp_path: Path) -> None:
    reader = classifier(other("pooled", hidden_size=8, hops=2, pooling="structured"))
    trace = reader.trace("the film was long")
    assert trace.axes["hops"] == Axis("labels", ["hop 1", "hop 2"], steps=True)
    weights = trace["encoder.pooling × gradient"].weights.mean(0).sum(0)
    assert torch.equal(trace["decision × gradient to text"].weights[0, 0], weights)
    shares = [one.share for one in explain(reader, "the film was long").words]
    assert shares == pytest.approx((weights[1:-1] / weights[1:-1].sum()).tolist(), abs=1e-5)
    check_views(trace, tmp_path)


def test_sentences_are_an_axis(tmp_path: Path) -> None:
    reader = classifier(
        other("hierarchical", word_hidden_size=4, sentence_hidden_size=4, attention_size=4)
    )
    trace = reader.trace("the film and it was long")
    assert trace.axes["sentences"].labels == ["sentence 1", "sentence 2"]
    words = trace["encoder.word_attention"].weights[0]
    assert words.sum(1).tolist() == pytest.approx([1.0, 1.0])
    assert [row.nonzero().flatten().tolist() for row in words] == [[1, 2, 3], [4, 5, 6]]
    why = explain(reader, "the film and it was long")
    assert sum(map(share_of, why.words)) == pytest.approx(1.0, abs=1e-5)
    check_views(trace, tmp_path)


def test_without_attention_to_words_they_have_no_share(tmp_path: Path) -> None:
    reader = classifier(other("pooled", hidden_size=8, pooling="mean"))
    why = explain(reader, "the film was")
    assert [one.share for one in why.words] == [None] * 3
    assert any(one.fall for one in why.words)
    check_views(why.trace, tmp_path)


@pytest.mark.parametrize("intra", [False, True])
def test_of_two_texts_that_attend_to_each_other_both_have_words(
    intra: bool, tmp_path: Path
) -> None:
    reader = classifier(other("compared", hidden_size=8, ffn_size=8, intra_attention=intra))
    trace = reader.trace(("the film", "it was long"))
    assert [len(trace.axes[axis]) for axis in ("first", "second")] == [2, 3]
    why = explain(reader, ("the film", "it was long"))
    assert [one.word for one in why.words] == ["the", "film", "it", "was", "long"]
    assert sum(map(share_of, why.words)) == pytest.approx(1.0, abs=1e-5)
    check_views(trace, tmp_path)


def test_a_pair_in_one_row_has_both_ends(tmp_path: Path) -> None:
    trace = classifier(headed()).trace(("the film", "was long"))
    assert trace.axes["text"].labels == ["<s>", "the", "film", "</s>", "was", "long", "</s>"]
    assert trace.words["text"] == [-1, 0, 1, -1, 2, 3, -1]
    assert [one.word for one in explain(classifier(), ("the film", "was long")).words] == [
        "the",
        "film",
        "was",
        "long",
    ]


def test_what_cannot_be_traced_is_said() -> None:
    reader = classifier(headed(max_length=6))
    for text, message in ((" ", "empty"), (" ".join(WORDS), "more tokens than the model's 4")):
        with pytest.raises(UserError, match=message):
            reader.trace(text)
    with pytest.raises(UserError, match="unknown label 'x'"):
        reader.trace("film", label="x")


# Tagging


def test_a_words_tag_is_that_of_its_first_token() -> None:
    model, own = headed("bpe", max_length=40), vocabulary("bpe")
    sentences = [["the", "unheard-of", "film"], [], ["it"], texts(1)[0].split()]
    tagger = Tagger(model, own, TAGS, batch_tokens=50)
    found = tagger.taggings(sentences)
    assert tagger.tag(sentences) == [list(one.tags) for one in found]
    for words, one in zip(sentences, found, strict=True):
        assert one.words == tuple(words)
        if words:
            tokens, firsts = encode_words(own, words)
            with torch.no_grad():
                encoded = model.encoder(sequences_of([tokens]))
                scores = model.heads["tagging"](encoded)[0].softmax(1)
            expected = scores[[place + 1 for place in firsts]].max(1)
            assert [TAGS.index(tag) for tag in one.tags] == expected.indices.tolist()
            assert list(one.probabilities) == pytest.approx(expected.values.tolist(), abs=1e-5)


def test_a_long_sentence_is_tagged_where_its_words_have_most_around_them() -> None:
    model, own = headed(max_length=10), vocabulary()
    words = (WORDS + WORDS)[:17]
    said: list[str] = []
    [one] = Tagger(model, own, TAGS, notify=said.append).taggings([words])
    tokens = own.encode(" ".join(words))
    starts = [start for start, _ in spans(17, 8, 4)]
    expected = []
    for place in range(17):
        inside = [start for start in starts if start <= place < start + 8]
        edges = {
            start: min(place - start if start else 99, start + 7 - place if start + 8 < 17 else 99)
            for start in inside
        }
        start = max(inside, key=lambda start: edges[start])
        with torch.no_grad():
            encoded = model.encoder(sequences_of([tokens[start : start + 8]]))
            scores = model.heads["tagging"](encoded)[0, place - start + 1]
        expected.append(TAGS[int(scores.argmax())])
    assert list(one.tags) == expected
    assert len(said) == 1


def test_validations_loss_of_tags_is_that_of_training_where_sentences_are_long() -> None:
    model, own = headed("bpe", max_length=10), vocabulary("bpe")
    rng = random.Random(4)
    sentences = [["the", "unheard-of", *texts(9, seed)[0].split() * 2] for seed in range(6)]
    examples = [Tagged(tuple(words), tuple(rng.choices(TAGS, k=len(words)))) for words in sentences]
    tagger = Tagger(model, own, TAGS, batch_tokens=40, notify=lambda said: None)
    cpu = torch.device("cpu")
    task = TaggingTask(model, cast(RowBatches, None), examples, tagger, device=cpu)
    found = task.validate().figures["loss"]
    lost = []
    for example in examples:
        tokens, firsts = encode_words(own, example.words)
        assert len(tokens) > max(8, len(firsts))
        for start, end in spans(len(tokens), 8):
            with torch.no_grad():
                encoded = model.encoder(sequences_of([tokens[start:end]]))
                scores = model.heads["tagging"](encoded)[0].double().log_softmax(1)
            lost += [
                -float(scores[place - start + 1, TAGS.index(tag)])
                for place, tag in zip(firsts, example.tags, strict=True)
                if start <= place < end
            ]
    assert found == pytest.approx(sum(lost) / len(lost), rel=1e-5)


def test_a_word_that_is_none_is_refused_with_its_sentence() -> None:
    with pytest.raises(UserError, match="sentence 2: a word is empty"):
        Tagger(headed(), vocabulary(), TAGS).tag([["it"], ["the", " "]])


def test_one_text_is_not_taken_for_many() -> None:
    with pytest.raises(UserError, match="give its words"):
        Tagger(headed(), vocabulary(), TAGS).tag(["dog"])
    with pytest.raises(UserError, match=r"tag takes texts.*\[text.split\(\)\]"):
        Tagger(headed(), vocabulary(), TAGS).tag("the dog")
    with pytest.raises(UserError, match="give its words"):
        Tagger(headed(), vocabulary(), TAGS).trace("dog")
    with pytest.raises(UserError, match=r"\[text\]"):
        learnt().classify("dog")
    with pytest.raises(UserError, match=r"fill_all takes texts.*\[text\]"):
        FillMask(headed(), vocabulary()).fill_all("[MASK]")


def test_a_tagging_is_traced_with_a_decision_a_word(tmp_path: Path) -> None:
    tagger = Tagger(headed("bpe"), vocabulary("bpe"), TAGS)
    trace = tagger.trace(["the", "film"])
    assert trace.decided == tagger.tag([["the", "film"]])[0]
    assert trace["rollout of decision to text"].weights.shape[1] == 2
    check_views(trace, tmp_path)


# Filling


@pytest.mark.parametrize("kind", ["words", "bpe", "bytes"])
def test_hidden_tokens_stand_where_the_tokens_stood(kind: str) -> None:
    own = vocabulary(kind) if kind != "bytes" else byte_vocabulary()
    filler = FillMask(headed_for(own), own)
    whole = own.encode("the film was very long")
    starts = [place for place, word in enumerate(own.word_indices(whole)) if word == 2]
    hidden = [*whole[: starts[0]], own.mask, *whole[starts[-1] + 1 :]]
    assert filler.tokens("the film [MASK] very long") == hidden
    name = own.pieces([own.mask or 0])[0]
    assert filler.tokens(f"the film {name} very long") == hidden


@pytest.mark.parametrize("kind", ["wordpiece", "wordpiece-cased"])
def test_a_text_with_masks_has_the_tokens_that_transformers_gives_it(kind: str) -> None:
    _, theirs, own = made(kind)
    filler = FillMask(headed_for(own), own)
    for text in ("the [MASK] sat", "un[MASK]able", "[MASK].", "a [MASK], [MASK] the", "the[MASK]"):
        expected = theirs(text, add_special_tokens=False)["input_ids"]
        assert filler.tokens(text) == in_ours(own, expected)


@cache
def byte_vocabulary() -> Vocabulary:
    settings = VocabularySettings(kind="bytes", vocabulary_size=330, mask=True)
    return train_vocabulary(lambda: iter(texts(60)), settings, seed=1, where="the test")


def headed_for(own: Vocabulary) -> HeadedEncoder:
    torch.manual_seed(3)
    bert = Bert(BertSettings(layers=1, hidden_size=8, heads=2, ffn_size=8, max_length=64), own.size)
    return HeadedEncoder(bert, {"masked": MaskedHead(bert)}).eval()


def test_candidates_have_the_models_probabilities() -> None:
    model, own = headed(), vocabulary()
    found = FillMask(model, own).fill("the [MASK] was [MASK]", count=4)
    tokens = FillMask(model, own).tokens("the [MASK] was [MASK]")
    with torch.no_grad():
        states = model.encoder(sequences_of([tokens])).states
        probabilities = model.heads["masked"](states[0, [2, 4]]).softmax(1)
    assert len(found.masks) == 2
    for row, own_masks in enumerate(found.masks):
        assert len(own_masks) == 4
        allowed = probabilities[row].clone()
        allowed[: END + 2] = 0
        expected = allowed.topk(4)
        assert [one.probability for one in own_masks] == pytest.approx(
            expected.values.tolist(), abs=1e-6
        )
        assert [one.token for one in own_masks] == own.pieces(expected.indices.tolist())
    best = [own_masks[0].word for own_masks in found.masks]
    assert found.text == f"the {best[0]} was {best[1]}" == found.masks[0][0].text
    assert found.masks[1][2].text == f"the {best[0]} was {found.masks[1][2].word}"
    json.dumps(found.to_json())


def test_in_a_long_text_each_place_is_read_in_the_middle_of_what_fits() -> None:
    model, own = headed(max_length=10), vocabulary()
    said: list[str] = []
    filler = FillMask(model, own, notify=said.append)
    text = " ".join(["[MASK]", *WORDS, "[MASK]", *WORDS])
    tokens = filler.tokens(text)
    found = filler.fill(text, count=1)
    for (one,), start, place in zip(found.masks, (0, 7), (0, 11), strict=True):
        with torch.no_grad():
            states = model.encoder(sequences_of([tokens[start : start + 8]])).states
            probabilities = model.heads["masked"](states[0, [place - start + 1]]).softmax(1)[0]
        token = own.encode(one.word)[0]
        assert one.probability == pytest.approx(float(probabilities[token]), abs=1e-6)
    assert len(said) == 1


def test_filling_needs_a_mask() -> None:
    filler = FillMask(headed(), vocabulary())
    with pytest.raises(UserError, match=r"the text has no mask; write \[MASK\] or <mask>"):
        filler.fill("the film")
    with pytest.raises(UserError, match="line 2: the text has no mask"):
        filler.fill_all(["the [MASK]", "film"], first=1)
    assert filler.fill_all(["", "[MASK]"], 1, first=1)[0].text == ""
    with pytest.raises(UserError, match="at least 1"):
        filler.fill("[MASK]", 0)
    settings = VocabularySettings(kind="words", vocabulary_size=60)
    without = train_vocabulary(lambda: iter(texts(60)), settings, seed=1, where="the test")
    with pytest.raises(UserError, match="no mask"):
        FillMask(headed(), without)


def test_a_filling_is_traced(tmp_path: Path) -> None:
    filler = FillMask(headed(), vocabulary())
    trace = filler.trace("the [MASK] was [MASK]")
    found = filler.fill("the [MASK] was [MASK]", 1)
    assert trace.decided == [own[0].token for own in found.masks]
    assert trace.log_probabilities == pytest.approx(
        [float(torch.tensor(own[0].probability).log()) for own in found.masks], abs=1e-5
    )
    check_views(trace, tmp_path)


# Language models


def test_a_language_models_trace_has_what_followed_each_token(tmp_path: Path) -> None:
    torch.manual_seed(1)
    own = vocabulary("bpe")
    model = Gpt(GptSettings(layers=2, hidden_size=16, heads=2, max_length=30), own.size).eval()
    generator = Generator(model, own)
    trace = generator.trace("the film", " was long")
    tokens = own.encode("the film was long")
    assert trace.axes == {"text": Axis("tokens", own.pieces(tokens), steps=True)}
    assert trace.decided[:-1] == own.pieces(tokens[1:])
    with torch.no_grad():
        scores = model.logits(model.states(torch.tensor([tokens])))[0].log_softmax(1)
    chosen = scores[:-1].gather(1, torch.tensor(tokens[1:])[:, None]).squeeze(1)
    assert trace.log_probabilities[:-1] == pytest.approx(chosen.tolist(), abs=1e-5)
    for one in trace.maps:
        assert float(one.weights.triu(1).abs().max()) < 1e-6  # nothing is seen before it is written
    # What stands in the prompt was not decided here, so its rows have no part in what was.
    before = len(own.encode("the film"))
    last = [one for one in trace.maps if one.kind == "gradient"][-1]
    assert float(last.weights[:, : before - 1].abs().max()) == 0.0
    assert float(last.weights[:, before - 1 :].abs().max()) > 0.0
    check_views(trace, tmp_path)
    whole = generator.trace("", options=SearchOptions(beam=1), max_tokens=4)
    assert whole.axes["text"].labels[0] == "<s>"
    begun = generator.trace("the film", "", begins=True)
    assert begun.axes["text"].labels == ["<s>", *own.pieces(own.encode("the film"))]
    with pytest.raises(UserError, match="more than the model's 30"):
        generator.trace("the film " * 40, "")


def test_a_certain_label_has_log_odds_and_prints_without_tensors() -> None:
    model = copy.deepcopy(learnt().model)
    with torch.no_grad():
        for parameter in model.heads["classification"].parameters():
            parameter.mul_(5)
    certain = Classifier(model, vocabulary(), learnt().labels)
    why = explain(certain, "bad film bad")  # without either "bad" there is still the other
    assert why.classification.label == "bad"
    assert max(abs(one.fall) for one in why.words) < 0.005
    probabilities = certain.classify(["bad film"])[0].probabilities
    left = math.log(probabilities["bad"] / (probabilities["good"] + probabilities["neither"]))
    whole = why.classification.probabilities
    before = math.log(whole["bad"] / (whole["good"] + whole["neither"]))
    assert why.words[2].log_odds == pytest.approx(before - left, abs=1e-3)
    named = words_shown(why).split()
    assert len(named) == 3
    assert all(one.endswith("nat") for one in named)
    for shown in (str(why), repr(why), repr(why.trace)):
        assert "tensor" not in shown
    assert str(why).splitlines()[0].startswith("bad  ")
