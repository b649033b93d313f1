"""ELMo: against plain convolutions and LSTMs, padding, directions, pre-training, fine-tuning."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import typer
from torch import Tensor, nn
from typer.testing import CliRunner

import heedful as package
from heedful.basics.errors import UserError
from heedful.basics.symbols import BEGIN, END
from heedful.cli import evaluate, predict, task_commands, train
from heedful.data.byte_vocabulary import ByteVocabulary
from heedful.data.vocabularies import VocabularySettings, separators_of, train_vocabulary
from heedful.layers.word_characters import word_spans
from heedful.models.elmo import Elmo, ElmoSettings
from heedful.models.encoders import HeadedEncoder, Sequences, sequences_of
from heedful.runs.opening import open_run
from heedful.runs.recipe import check_recipe, find_recipe, read_recipe
from heedful.tasks.bidirectional.head import UNKNOWN_WORD, WordRows
from heedful.tasks.bidirectional.training import BidirectionalTask, WordOutput
from heedful.tasks.texts.rows import RowBatch

SPACE, SYMBOLS = 5, 15
SMALL = {
    "character_size": 3,
    "filters": [[1, 2], [3, 4]],
    "highway_layers": 2,
    "hidden_size": 6,
    "projection_size": 4,
}
TEXTS = [[7, 8, 9, 5, 6, 5, 5, 10], [11], [7, 8, 9, 5, 12, 13, 14, 7, 8, 9, 10]]
"""Words of one to seven characters, one of them twice, and two spaces between words."""

torch.set_num_threads(1)
app = typer.Typer()
for command in (train, task_commands, evaluate, predict):
    command.register(app)


def build(**options: Any) -> Elmo:
    torch.manual_seed(1)
    model = Elmo(ElmoSettings(**{**SMALL, **options}), SYMBOLS, [SPACE]).double().eval()
    for parameter in model.parameters():
        parameter.data.add_(0.3 * torch.randn_like(parameter))
    return model


def words_of(row: list[int]) -> list[list[int]]:
    """The words of a text, between BEGIN and END, by a loop."""
    words: list[list[int]] = [[]]
    for token in row:
        if token == SPACE:
            words.append([])
        else:
            words[-1].append(token)
    return [[BEGIN], *(word for word in words if word), [END]]


def plain_word(model: Elmo, word: list[int]) -> Tensor:
    """The vector of a word ``[P]``: Kim et al. 2016, equations 5 to 8, with PyTorch's conv1d."""
    part = model.reader.characters
    tokens = torch.tensor([SYMBOLS, *word, SYMBOLS + 1])
    x = part.characters.weight[tokens].T.unsqueeze(0)  # [1, E, C]
    found = []
    for width, linear in zip(part.widths, part.convolutions, strict=True):
        kernel = linear.weight.unflatten(1, (width, -1)).transpose(1, 2)
        y = F.conv1d(F.pad(x, (0, width - 1)), kernel, linear.bias)
        found.append(torch.relu(y)[0].max(1).values)
    y = torch.cat(found)
    for layer in part.highways:
        t = torch.sigmoid(layer.gate.weight @ y + layer.gate.bias)
        y = t * torch.relu(layer.transform.weight @ y + layer.transform.bias) + (1 - t) * y
    return part.projection.weight @ y + part.projection.bias


def plain_direction(direction: nn.Module, words: Tensor) -> list[Tensor]:
    """The states ``[W, P]`` after each layer by the equations of an LSTM with a projection."""
    found: list[Tensor] = []
    hidden = words
    for layer in direction.layers:
        h = words.new_zeros(words.shape[1])
        c = words.new_zeros(layer.hidden_size)
        states = []
        for x in hidden:
            z = layer.weight_ih_l0 @ x + layer.bias_ih_l0 + layer.weight_hh_l0 @ h
            i, f, g, o = (z + layer.bias_hh_l0).chunk(4)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
            h = layer.weight_hr_l0 @ h if layer.proj_size else h
            states.append(h)
        hidden = torch.stack(states) + (hidden if found else 0)
        found.append(hidden)
    return found


def plain_layers(model: Elmo, text: list[int]) -> list[Tensor]:
    """``[W, 2 P]`` of the characters and after each layer."""
    words = torch.stack([plain_word(model, word) for word in words_of(text)])
    right = plain_direction(model.reader.to_right, words)
    left = [each.flip(0) for each in plain_direction(model.reader.to_left, words.flip(0))]
    pairs = [(words, words), *zip(right, left, strict=True)]
    return [torch.cat(pair, 1) for pair in pairs]


def plain_text(model: Elmo, text: list[int]) -> tuple[Tensor, Tensor]:
    """The states of the words ``[W, D]`` and the pooled vector ``[D]``."""
    settings, layers = model.settings, plain_layers(model, text)
    words = layers[-1]
    if settings.mixture == "learned":
        s = torch.exp(model.mixture.weights) / torch.exp(model.mixture.weights).sum()
        words = model.mixture.scale * sum(s[j] * layers[j] for j in range(len(layers)))
    if settings.upper_size:
        words = model.upper.network(words.unsqueeze(0))[0][0]
    inner = words[1:-1]
    pooled = inner.mean(0) if settings.word_pooling == "mean" else inner.max(0).values
    return words, pooled


def with_gradients(model: nn.Module, *results: Tensor) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(4)
    model.zero_grad()
    total = sum(
        (each * torch.randn(each.shape, generator=generator).double()).sum() for each in results
    )
    total.backward()
    found = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    return {**{str(place): each.detach() for place, each in enumerate(results)}, **found}


def assert_same(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, part in found.items():
        torch.testing.assert_close(part, expected[name], rtol=1e-9, atol=1e-10, msg=name)


def word_states(batch: Sequences, states: Tensor) -> Tensor:
    """The states of all words, row by row, read at their first characters."""
    spans = word_spans(batch.tokens, batch.lengths, torch.tensor([SPACE]))
    index = spans.starts.unsqueeze(2).expand(-1, -1, states.shape[2])
    return states.gather(1, index)[spans.real]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"projection_size": 6, "mixture": "top", "word_pooling": "mean"},
        {"layers": 3, "upper_size": 5, "highway_layers": 0},
        {"layers": 1, "filters": [[9, 3]], "upper_size": 2, "word_pooling": "mean"},
    ],
    ids=str,
)
def test_outputs_and_gradients_are_the_papers(options: dict[str, Any]) -> None:
    model, batch = build(**options), sequences_of(TEXTS)
    plain = [plain_text(model, text) for text in TEXTS]
    words, pooled = torch.cat([each for each, _ in plain]), torch.stack([each for _, each in plain])
    expected = with_gradients(model, words, pooled)
    encoded = model(batch)
    assert_same(with_gradients(model, word_states(batch, encoded.states), encoded.pooled), expected)
    used = {name for name, _ in model.named_parameters()}
    assert used <= expected.keys()  # every parameter has a gradient


def test_every_character_has_the_state_of_its_word() -> None:
    model, batch = build(), sequences_of(TEXTS[:1])
    states = model(batch).states[0]  # BEGIN 7 8 9 _ 6 _ _ 10 END
    for same in ((1, 2, 3, 4), (5, 6, 7)):
        assert all(torch.equal(states[place], states[same[0]]) for place in same)
    firsts = torch.stack([states[place] for place in (0, 1, 5, 8, 9)])
    assert (torch.cdist(firsts, firsts) + torch.eye(5)).min() > 1e-3


def test_padding_has_no_influence() -> None:
    model, batch = build(upper_size=3), sequences_of(TEXTS)
    expected = model(batch)
    for row, text in enumerate(TEXTS):
        alone = model(sequences_of([text]))
        length = len(text) + 2
        torch.testing.assert_close(alone.states[0], expected.states[row, :length])
        torch.testing.assert_close(alone.pooled[0], expected.pooled[row])
    wider = F.pad(batch.tokens, (0, 3))
    beyond = torch.arange(wider.shape[1]) >= batch.lengths.unsqueeze(1)
    noise = torch.where(beyond, torch.randint(2, SYMBOLS, wider.shape), wider)
    found = model(Sequences(noise, batch.lengths, F.pad(batch.segments, (0, 3))))
    torch.testing.assert_close(found.states[:, : batch.tokens.shape[1]], expected.states)
    torch.testing.assert_close(found.pooled, expected.pooled)
    assert found.states[beyond].eq(0).all()


def test_a_direction_reads_no_word_that_it_predicts() -> None:
    model = build()
    before = model.directions(sequences_of([[7, 5, 8, 5, 9, 5, 10]]))
    after = model.directions(sequences_of([[7, 5, 8, 5, 11, 5, 10]]))  # BEGIN 7 8 [9→11] 10 END
    for old, new in zip(before.forward, after.forward, strict=True):
        assert torch.equal(old[0, :3], new[0, :3])
        assert not torch.isclose(old[0, 3:], new[0, 3:]).all(-1).any()
    for old, new in zip(before.backward, after.backward, strict=True):
        assert torch.equal(old[0, 4:], new[0, 4:])
        assert not torch.isclose(old[0, :4], new[0, :4]).all(-1).any()


def test_pairs_and_empty_texts() -> None:
    model = build()
    encoded = model(sequences_of([[7, 5, 8], []], [[9], [10]]))
    single = model(sequences_of([[]])).pooled
    assert single.eq(0).all()
    assert encoded.pooled.abs().sum(1).min() > 0


class Some(nn.Module):
    """A model with heads."""


def test_the_loss_is_the_papers() -> None:
    """Equation 2 by loops: both directions share the characters and the output layer."""
    model = build()
    torch.manual_seed(2)
    headed = HeadedEncoder(model, {"bidirectional": WordOutput(4, 9, 0.1)}).double().eval()
    batch = sequences_of(TEXTS)
    labels = torch.zeros_like(batch.tokens)
    spans = word_spans(batch.tokens, batch.lengths, torch.tensor([SPACE]))
    goals = []
    generator = torch.Generator().manual_seed(3)
    for row, text in enumerate(TEXTS):
        own = [0, *torch.randint(1, 9, (len(words_of(text)) - 2,), generator=generator), 0]
        labels[row].scatter_(0, spans.starts[row, : len(own)], torch.tensor(own))
        goals.append(torch.tensor(own))
    task = BidirectionalTask(headed, [], None, device=torch.device("cpu"))  # type: ignore[arg-type]
    weight = int((labels > 0).sum())
    loss = task.loss(RowBatch(batch, labels, weight))
    output = headed.heads["bidirectional"].output
    sums = {"forward": torch.zeros(()).double(), "backward": torch.zeros(()).double()}
    for text, goal in zip(TEXTS, goals, strict=True):
        top = plain_layers(model, text)[-1]
        right, left = top[:, :4], top[:, 4:]
        for place in range(len(goal) - 1):
            after = output.weight @ right[place] + output.bias
            sums["forward"] = sums["forward"] - after.log_softmax(0)[goal[place + 1]]
            before = output.weight @ left[place + 1] + output.bias
            sums["backward"] = sums["backward"] - before.log_softmax(0)[goal[place]]
    count = sum(len(goal) - 1 for goal in goals)
    for name, own in sums.items():
        torch.testing.assert_close(loss.parts[name], own.detach())
    expected = (sums["forward"] + sums["backward"]) * weight / count
    trained = [p for n, p in headed.named_parameters() if not n.startswith("encoder.mixture")]
    found = torch.autograd.grad(loss.total, trained)
    torch.testing.assert_close(loss.total, expected)
    for one, other in zip(found, torch.autograd.grad(expected, trained), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-10)


def test_frozen_features_are_not_trained() -> None:
    model = build(frozen=True, upper_size=3, dropout=0.5).train()
    batch = sequences_of(TEXTS)
    first, second = model.directions(batch), model.directions(batch)
    assert torch.equal(first.forward[-1], second.forward[-1])  # no dropout in what is frozen
    model(batch).pooled.sum().backward()
    trained = {name.partition(".")[0] for name, p in model.named_parameters() if p.grad is not None}
    assert trained == {"mixture", "upper"}
    assert model.depth("reader.to_left.layers.1.weight_ih_l0") == 2
    assert model.depths == 4


def expected_parameters(settings: ElmoSettings, symbols: int) -> int:
    """As docs/systems.md writes it out."""
    e, h, p = settings.character_size, settings.hidden_size, settings.projection_size
    f = sum(number for _, number in settings.filters)
    convolutions = sum((k * e + 1) * n for k, n in settings.filters)
    words = (symbols + 2) * e + convolutions
    words += settings.highway_layers * 2 * (f * f + f) + f * p + p
    lstm = 4 * h * (p + p + 2) + (h * p if p < h else 0)
    mixture = settings.layers + 2 if settings.mixture == "learned" else 0
    return words + 2 * settings.layers * lstm + mixture


def test_the_docs_count_is_that_of_the_model() -> None:
    filters = [[1, 32], [2, 32], [3, 64], [4, 128], [5, 256], [6, 512], [7, 1024]]
    original = ElmoSettings(filters=filters, hidden_size=4096, projection_size=512)
    page = (Path(__file__).parents[1] / "docs" / "systems.md").read_text(encoding="utf-8")
    for settings in (original, ElmoSettings(), ElmoSettings(**{**SMALL, "projection_size": 6})):
        with torch.device("meta"):
            model = Elmo(settings, 260)
        count = sum(parameter.numel() for parameter in model.parameters())
        assert count == expected_parameters(settings, 260)
        assert settings is not original or f"{count:,}" in page


def bytes_vocabulary() -> ByteVocabulary:
    settings = VocabularySettings(kind="bytes", vocabulary_size=260)
    return train_vocabulary(lambda: ["any text"], settings, seed=1, where="here")  # type: ignore[return-value]


def test_rows_are_whole_words_and_lose_none() -> None:
    vocabulary = bytes_vocabulary()
    text = "  The café  is\tclosed.\n\n日本語 x\nbeyonditall and more words than one row"
    cutter = WordRows(vocabulary, 12)
    rows = list(cutter.rows(text))
    assert all(len(row.tokens) <= 10 for row in rows)
    classes = cutter.classes(["The", "café", "日本語"])
    spelled, found = [], []
    for row in rows:
        tokens, labels = cutter.labelled(row, classes)
        spelled += vocabulary.decode(tokens).split()
        found += [label for label in labels if label]
    assert "".join(spelled) == "".join(text.split())
    assert cutter.cut == 1  # beyonditall has eleven bytes
    assert found[:3] == [UNKNOWN_WORD + 1, UNKNOWN_WORD + 2, UNKNOWN_WORD]
    assert found.count(UNKNOWN_WORD + 3) == 1
    assert len(found) == len(text.split()) + 1
    most = cutter.most_frequent(["b a b", "c\nb a"], 2)
    assert most == ["b", "a"]


def test_white_space_is_found_in_characters_and_bytes() -> None:
    vocabulary = bytes_vocabulary()
    assert vocabulary.size == 260
    found = separators_of(vocabulary)
    assert sorted(vocabulary.decode([token]) for token in found)[:4] == ["\t", "\n", "\x0b", "\x0c"]
    settings = VocabularySettings(kind="characters")
    letters = train_vocabulary(lambda: ["a b\n"], settings, seed=1, where="here")
    assert {letters.decode([token]) for token in separators_of(letters)} == {" ", "\n"}


def test_texts_without_white_space_need_bytes(tmp_path: Path) -> None:
    rows = {"train": [{"text": word, "label": word[0]} for word in ("ab", "ba", "aab", "bba")]}
    recipe: dict[str, Any] = {
        "task": "classification",
        "data": {"validation_share": 0.0},
        "tokeniser": {"kind": "characters"},
        "model": {"kind": "elmo", "layers": 1, "hidden_size": 4, "projection_size": 4},
        "training": {"max_steps": 1},
    }
    with pytest.raises(UserError, match=r"no white space.*tokeniser\.kind = 'bytes'"):
        package.train(recipe, tmp_path / "run", data=rows)
    assert not (tmp_path / "run" / "run.json").exists()


ELMO = {"kind": "elmo"}
BYTES = {"kind": "bytes", "vocabulary_size": 260}


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"model": ELMO}, "'elmo' makes words of characters: set tokeniser.kind"),
        ({"model": ELMO, "tokeniser": {**BYTES, "vocabulary_size": 500}}, "makes words of char"),
        ({"model": {"kind": "bert", "size": "tiny"}}, "needs model.kind = 'elmo'"),
        ({"model": {"frozen": True}, "tokeniser": BYTES}, "nothing to pre-train"),
        ({"model": {"projection_size": 300}, "tokeniser": BYTES}, "more than hidden_size 256"),
        ({"model": {"filters": [[3]]}, "tokeniser": BYTES}, "model.filters"),
        ({"model": {"filters": []}, "tokeniser": BYTES}, "model.filters"),
        ({"model": {"highways": 2}, "tokeniser": BYTES}, "highway_layers"),
        ({"model": ELMO, "tokeniser": BYTES, "max_tokens": 4096}, "more than model.max_length"),
        ({"tokeniser": BYTES, "data": {"sentences": "en"}}, "data.sentences"),
    ],
    ids=str,
)
def test_a_wrong_setting_is_one_clear_line(tables: dict[str, Any], message: str) -> None:
    given = {"task": "bidirectional", **tables}
    given["data"] = {"train": "a.txt", **tables.get("data", {})}
    with pytest.raises(UserError, match=message) as error:
        check_recipe(given, "recipe.toml")
    assert "\n" not in str(error.value)


def test_the_recipes_of_fine_tuning_fit_that_of_pre_training() -> None:
    def recipe(name: str) -> Any:
        return check_recipe(read_recipe(find_recipe(name)), name)

    first = recipe("wikitext2-elmo-tiny")
    for name in ("trec-elmo-tiny", "ewt-elmo-tiny"):
        other = recipe(name)
        assert other.tokeniser == first.tokeniser
        assert other.model.model_copy(update={"upper_size": 0}) == first.model


TRAINING = """
[tokeniser]
kind = "bytes"
vocabulary_size = 260
[model]
kind = "elmo"
character_size = 4
filters = [[1, 4], [3, 8]]
hidden_size = 12
projection_size = 8
max_length = 64
[training]
max_steps = 8
batch_tokens = 400
validate_every = 4
checkpoint_every = 4
schedule = "constant"
threads = 1
"""
PRETRAINING = f"""
task = "bidirectional"
max_tokens = 32
words = 6
[data]
train = "text.txt"
validation = "text.txt"
test = "text.txt"
documents = "lines"
{TRAINING}"""
CLASSIFICATION = f"""
task = "classification"
max_tokens = 32
[data]
train = "labelled.tsv"
validation = "labelled.tsv"
test = "labelled.tsv"
{TRAINING}"""
TAGGING = f"""
task = "tagging"
max_tokens = 48
[data]
train = "tagged.conllu"
validation = "tagged.conllu"
test = "tagged.conllu"
{TRAINING}"""


def heedful(*words: object, given: str = "") -> str:
    done = CliRunner().invoke(app, list(map(str, words)), input=given, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("elmo")
    lines = [f"the {a} sees the {b} and sleeps" for a in ("cat", "dog") for b in ("hen", "ox")]
    (path / "text.txt").write_text("\n".join(lines * 3), encoding="utf-8")
    labelled = [f"{label}\t{word} it is" for label, word in (("p", "good"), ("n", "bad"))] * 4
    (path / "labelled.tsv").write_text("label\ttext\n" + "\n".join(labelled), encoding="utf-8")
    row = "{}\t{}\t_\t{}" + "\t_" * 6 + "\n"
    sentence = row.format(1, "cats", "NOUN") + row.format(2, "sleep", "VERB") + "\n"
    (path / "tagged.conllu").write_text(sentence * 4, encoding="utf-8")
    for name, text in (("pre", PRETRAINING), ("class", CLASSIFICATION), ("tag", TAGGING)):
        (path / f"{name}.toml").write_text(text, encoding="utf-8")
    heedful("train", path / "pre.toml", "--data", path, "--out", path / "pre")
    return path


def weights(run: Path) -> dict[str, Tensor]:
    return open_run(run).chosen("last").weights()


def test_pre_training_is_resumed_exactly_and_evaluated(folder: Path, tmp_path: Path) -> None:
    for steps in (4, 8):
        heedful(
            *("train", folder / "pre.toml", "--data", folder, "--out", tmp_path / "halves"),
            *("--set", f"training.max_steps={steps}"),
        )
    whole, halves = weights(folder / "pre"), weights(tmp_path / "halves")
    assert whole.keys() == halves.keys()
    assert all(torch.equal(part, halves[name]) for name, part in whole.items())
    facts = open_run(folder / "pre").facts["sets"]["bidirectional"]
    assert facts["labels"] == ["the", "and", "sees", "sleeps", "cat", "dog"]
    assert (facts["train"], facts["unit"]) == (84, "words")
    found = json.loads(heedful("evaluate", folder / "pre", "--json"))
    scores = found["scores"]["bidirectional"]
    assert scores["loss"] == pytest.approx(scores["forward_loss"] + scores["backward_loss"])


def test_words_are_predicted_from_both_sides(folder: Path) -> None:
    text = "the zebra  sees\n\na word of its own and another line that is far longer than the limit"
    predictor = package.load(folder / "pre")
    (found, empty) = predictor.predict([text, "  "])
    assert list(found.words) == text.split()
    assert found.known[:3] == (True, False, True)
    assert max(*found.forward, *found.backward) < 0
    assert empty.words == ()
    (alone,) = predictor.predict(["the zebra  sees"])
    assert alone.forward == pytest.approx(found.forward[:3], abs=1e-5)
    assert alone.backward == pytest.approx(found.backward[:3], abs=1e-5)
    line = json.loads(heedful("predict", folder / "pre", given="the cat\n").splitlines()[0])
    assert line["words"] == ["the", "cat"]
    with pytest.raises(UserError, match="ELMo has no attention"):
        predictor.trace("the cat")


@pytest.mark.parametrize("frozen", ["true", "false"])
def test_a_classifier_starts_from_it(folder: Path, tmp_path: Path, frozen: str) -> None:
    run = tmp_path / "run"
    heedful(
        *("train", folder / "class.toml", "--data", folder, "--out", run),
        *("--start-from", folder / "pre", "--set", f"model.frozen={frozen}"),
        *("--set", "model.upper_size=5", "--set", "model.word_pooling='mean'"),
    )
    before, after = weights(folder / "pre"), weights(run)
    reader = [name for name in before if name.startswith("encoder.reader.")]
    same = [torch.equal(before[name], after[name]) for name in reader]
    assert all(same) if frozen == "true" else not any(same[1:])
    assert any(name.startswith("encoder.upper.") for name in after)
    assert not torch.equal(after["encoder.mixture.weights"], torch.zeros(3))
    classifier = package.load(run)
    texts = ["good it is", "wombats", "wombat 日本"]  # words that no training has seen
    found = [one.probabilities["p"] for one in classifier.predict(texts)]
    assert len(set(found)) == 3
    alone = [classifier.predict([text])[0].probabilities["p"] for text in texts]
    assert alone == pytest.approx(found, abs=1e-6)


def test_a_tagger_starts_from_it_and_tags_unseen_words(folder: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    heedful(
        *("train", folder / "tag.toml", "--data", folder, "--out", run),
        *("--start-from", folder / "pre", "--set", "model.upper_size=5"),
    )
    tagger = package.load(run)
    sentence = ["wombats", "l'été", "10 000", "日本語", "x" * 100, "sleep"]
    (found,) = tagger.taggings([sentence])
    assert found.words == tuple(sentence)
    assert found.windows > 1
    (one,), (other,) = (tagger.taggings([[word, "sleep"]]) for word in ("wombat", "wombats"))
    assert one.probabilities != other.probabilities


def test_a_start_that_does_not_fit_is_one_clear_line(folder: Path, tmp_path: Path) -> None:
    words = [
        *("train", folder / "class.toml", "--data", folder, "--out", tmp_path / "run"),
        *("--start-from", folder / "pre", "--set", "model.hidden_size=16"),
    ]
    done = CliRunner().invoke(app, list(map(str, words)))
    assert isinstance(done.exception, UserError)
    assert "model.hidden_size" in str(done.exception)
    assert "\n" not in str(done.exception)
