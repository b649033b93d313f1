"""Tagging by a conditional random field: training, windows, constraints."""

import json
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

import heedful
from heedful.basics.cancellation import CancelledWorkError, cancellable
from heedful.basics.errors import UserError
from heedful.cli import main
from heedful.data.examples import Tagged
from heedful.data.positions import Position
from heedful.data.tag_schemes import may_follow, spans
from heedful.inference.sliding_windows import spans as windows
from heedful.inference.tagger import Tagger, _distance, _part_of
from heedful.layers.linear_chain import best_tags, log_likelihood, log_marginals
from heedful.models.encoders import sequences_of
from heedful.runs.opening import open_run
from heedful.tasks.spec import spec_of_run
from heedful.tasks.tagging.evaluation import score_tags
from text_help import LOOP, encoder

NAMES = {"ann": "PER", "bob": "PER", "new": "LOC", "york": "LOC", "rome": "LOC"}
SENTENCES = [
    ("ann sees new york", "B-PER O B-LOC I-LOC"),
    ("new york sees bob", "B-LOC I-LOC O B-PER"),
    ("ann bob eats", "B-PER I-PER O"),
    ("the dog sees rome", "O O O B-LOC"),
    ("rome eats the dog", "B-LOC O O O"),
    ("bob eats", "B-PER O"),
    ("ann", "B-PER"),
    ("the dog eats", "_ O O"),
]


def write(folder: Path) -> dict[str, Any]:
    blocks = [
        "\n".join(map("\t".join, zip(words.split(), tags.split(), strict=True)))
        for words, tags in SENTENCES
    ]
    for name, times in (("train", 6), ("held", 1)):
        (folder / f"{name}.tsv").write_text("\n\n".join(blocks * times) + "\n", encoding="utf-8")
    return {
        "train": "train.tsv",
        "validation": "held.tsv",
        "test": "held.tsv",
        "untagged": "_",
        "scheme": "IOB2",
    }


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("chain")
    loop = {**LOOP, "max_steps": 60, "validate_every": 30, "checkpoint_every": 30}
    recipe = encoder("tagging", write(folder), crf=True, training=loop, max_tokens=8)
    assert heedful.train(recipe, folder / "run", data=folder)
    return folder / "run"


def task_of(run: Path) -> Any:
    opened = open_run(run)
    spec = spec_of_run(run)[1]
    settings = opened.recipe.training  # type: ignore[attr-defined]
    model = spec.load(run, device="cpu").model
    return spec.build_task(opened, model, settings, torch.device("cpu"), "float32")


def test_tags_are_learned(run: Path) -> None:
    tagger = heedful.load(run, device="cpu")
    for words, tags in SENTENCES:
        (found,) = tagger.predict([words])
        right = [one == other for one, other in zip(found.tags, tags.split(), strict=True)]
        assert sum(right) >= len(right) - tags.count("_"), (words, found)
        assert all(0 < one <= 1 for one in found.probabilities)


def test_the_loss_is_that_of_each_sentence_alone(run: Path) -> None:
    task = task_of(run)
    task.model.eval()
    batch = next(iter(task.batches(Position(0))))[1]
    head = task.model.heads["tagging"]
    total = 0.0
    for tokens, length, labels in zip(
        batch.rows.tokens, batch.rows.lengths, batch.labels, strict=True
    ):
        row = sequences_of([tokens[1 : length - 1].tolist()])
        words = labels > 0
        emissions = head(task.model.encoder(row))[:, words[:length]]
        tags = labels[words].where(labels[words] <= len(task.reader.tags), torch.tensor(0)) - 1
        assert words[1 : length - 1].all()  # each word is a token in this vocabulary
        own = log_likelihood(emissions, head.transitions, tags[None], words.sum()[None])
        total -= float(own.detach())
    assert float(task.loss(batch).total) == pytest.approx(total, rel=1e-5)
    parts = task.split(batch, 3, 1)
    assert len(parts) == 3
    assert sum(float(task.loss(part).total) for part in parts) == pytest.approx(total, rel=1e-5)


def test_words_without_a_tag_are_summed_over(run: Path) -> None:
    """The rows have them: the label after the last tag."""
    task = task_of(run)
    position = Position(0)
    seen = set()
    for _ in range(8):
        position, batch = next(iter(task.batches(position)))
        seen |= set(batch.labels.unique().tolist())
    assert seen == {0, *range(1, len(task.reader.tags) + 2)}


def best_of_all(tagger: Tagger, emissions: torch.Tensor) -> list[str]:
    """The best allowed sequence, by trying all."""
    transitions = tagger.model.heads["tagging"].transitions
    found, most = [], -float("inf")
    for path in product(range(len(tagger.tags)), repeat=len(emissions)):
        tags = [None, *(tagger.tags[tag] for tag in path), None]
        if not all(may_follow("IOB2", *pair) for pair in pairwise(tags)):
            continue
        score = sum(float(row[tag]) for row, tag in zip(emissions, path, strict=True))
        score += sum(float(transitions[pair]) for pair in pairwise(path))
        if score > most:
            most, found = score, [tagger.tags[tag] for tag in path]
    return found


def test_the_tags_are_the_best_that_the_scheme_allows(run: Path) -> None:
    tagger = heedful.load(run, device="cpu")
    head = tagger.model.heads["tagging"]
    draw = torch.Generator().manual_seed(4)
    with torch.no_grad():
        head.transitions.copy_(torch.randn(head.transitions.shape, generator=draw))
    emissions = [torch.randn(count, len(tagger.tags), generator=draw) for count in (4, 1, 3, 0)]
    with torch.no_grad():
        decided = tagger.chain.decide(emissions)
    for own, (tags, values) in zip(emissions, decided, strict=True):
        names = [tagger.tags[tag] for tag in tags]
        assert names == (best_of_all(tagger, own) if len(own) else [])
        assert (values <= 0).all()
    free = Tagger(tagger.model, tagger.vocabulary, tagger.tags).chain
    assert free is not None
    with torch.no_grad():
        tags, values = free.decide(emissions[:1])[0]
        count = torch.tensor([len(emissions[0])])
        exact = emissions[0][None].double(), head.transitions.double()
        marginals = log_marginals(*exact, count)[0]
    torch.testing.assert_close(values, marginals[torch.arange(len(tags)), tags])


def test_spans_are_scored_beside_gold_tags_that_mark_none(run: Path) -> None:
    tagger = heedful.load(run, device="cpu")
    example = Tagged(("ann", "sees", "rome"), ("B-PER", "X", "B-LOC"))
    found = score_tags("tagging", tagger, [example], 0).figures
    assert {"span_f1", "strict_span_f1"} <= found.keys()


def test_probabilities_of_long_sentences_are_exact(run: Path) -> None:
    chain = heedful.load(run, device="cpu").chain
    draw = torch.Generator().manual_seed(5)
    tags = len(chain.between)
    some = 20 * torch.randn(2000, tags, generator=draw)
    with torch.no_grad():
        [marginals] = chain.log_marginals([some], 0.1)
        [(chosen, values)] = chain.decide([some], 0.1)
    assert (marginals.exp().sum(1) - 1).abs().max() < 1e-6
    assert torch.equal(values, marginals[torch.arange(2000), chosen])


def test_long_sentences_can_be_cancelled(run: Path) -> None:
    emissions, transitions = torch.randn(1, 9, 3), torch.randn(3, 3)
    for work in (best_tags, log_marginals):
        with cancellable(lambda: False), pytest.raises(CancelledWorkError):
            work(emissions, transitions, torch.tensor([9]))


@pytest.mark.parametrize("length", [*range(1, 40), 97])
def test_a_token_is_read_in_the_window_in_whose_middle_it_is(length: int) -> None:
    parts = windows(length, 8, 4)
    starts = [start for start, _ in parts]
    for place in range(length):
        distances = [_distance(part, place, length) for part in parts]
        assert _part_of(place, parts, starts, length) == distances.index(max(distances))


def test_a_long_sentence_is_decided_as_a_whole(run: Path) -> None:
    tagger = heedful.load(run, device="cpu")
    tagger.notify = lambda message: None
    words = ["ann", "bob", "eats", "new", "york", "the", "dog", "sees", "rome"] * 8
    (found,) = tagger.taggings([words])
    assert found.windows > 1
    assert len(found.tags) == len(words)
    assert spans(found.tags) == spans(found.tags, "IOB2")
    # The emissions of each word come from one window; their chain is that of the sentence.
    tokens, firsts = tagger.encode(words)
    assert firsts == list(range(len(words)))
    room = tagger.max_length - 2
    with torch.no_grad():
        start = tagger.model.encoder(sequences_of([tokens[:room]]))
        emissions = tagger.model.heads["tagging"](start)[0, 1:-1]
        prefix = tagger.chain.decide([emissions[: room // 4]])[0][0]
    assert [tagger.tags[tag] for tag in prefix][:-2] == list(found.tags[: room // 4 - 2])


def test_a_sentence_alone_and_in_a_batch_gets_the_same_tags(run: Path) -> None:
    tagger = heedful.load(run, device="cpu")
    together = tagger.predict([words for words, _ in SENTENCES] + [""])
    for found, (words, _) in zip(together, SENTENCES, strict=False):
        (alone,) = tagger.predict([words])
        assert alone.tags == found.tags
        assert alone.probabilities == pytest.approx(found.probabilities, rel=1e-5)
    assert together[-1].tags == ()


def test_a_trace_decides_the_same_tags(run: Path) -> None:
    tagger = heedful.load(run, device="cpu")
    words = ["ann", "sees", "new", "york"]
    assert list(tagger.trace(words).decided) == tagger.tag([words])[0]


def command(arguments: list[str]) -> Any:
    if not main.app.registered_commands:
        main._register()
    return CliRunner().invoke(main.app, arguments)


def test_evaluation(run: Path) -> None:
    done = command(["evaluate", str(run), "--json", "--device", "cpu"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["scores"]["tagging"]["accuracy"] > 0.9


def test_a_softmax_head_does_not_become_a_chain(run: Path, tmp_path: Path) -> None:
    """Starting from a run with another output layer makes a new head."""
    data = {key: value for key, value in write(tmp_path).items() if key != "scheme"}
    recipe = encoder("tagging", data, training={**LOOP, "max_steps": 2}, max_tokens=8)
    heedful.train(recipe, tmp_path / "plain", data=tmp_path, start_from=run)
    assert not hasattr(
        heedful.load(tmp_path / "plain", device="cpu").model.heads.tagging, "transitions"
    )


@pytest.mark.parametrize("setting", [{"label_smoothing": 0.1}, {"consistency": 1.0}])
def test_losses_of_single_tags_are_refused(setting: dict[str, Any], tmp_path: Path) -> None:
    recipe = encoder("tagging", write(tmp_path), crf=True, training={**LOOP, **setting})
    with pytest.raises(UserError, match="crf = true scores whole sentences"):
        heedful.train(recipe, tmp_path / "run", data=tmp_path)


def test_tags_of_another_scheme_are_refused(tmp_path: Path) -> None:
    data = {**write(tmp_path), "scheme": "IOE2"}
    with pytest.raises(UserError, match="the tag 'B-LOC' is not of the scheme IOE2"):
        heedful.train(encoder("tagging", data, crf=True), tmp_path / "run", data=tmp_path)


def test_a_chain_is_not_exported_without_its_transitions(run: Path, tmp_path: Path) -> None:
    for format in ("hf", "onnx"):
        done = command(["export", format, str(run), "--out", str(tmp_path / format)])
        assert isinstance(done.exception, UserError)
        assert "conditional random field" in str(done.exception)
