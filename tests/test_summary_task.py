"""Summaries: reading, training, the command, ROUGE, what is copied, the trace, bad input."""

import json
import lzma
import random
import re
import string
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import typer
from rouge_score.rouge_scorer import RougeScorer
from safetensors.torch import load_file
from torch import Tensor
from typer.testing import CliRunner

import heedful
from heedful.basics.errors import UserError
from heedful.basics.settings import check
from heedful.basics.symbols import END, PAD, UNKNOWN
from heedful.cli import evaluate, task_commands
from heedful.data.column_batch import ColumnBatch
from heedful.data.readers.summaries import read_summaries, read_texts_to_summarise
from heedful.decoding import SearchOptions, search
from heedful.decoding.no_repeats import NoRepeats
from heedful.evaluation.rouge import measures, rouge_figures, rouge_values
from heedful.evaluation.statistics import measure
from heedful.inference import Trace
from heedful.models import Source, TensorState
from heedful.runs.opening import open_run
from heedful.runs.recipe import check_recipe
from heedful.tasks.commands import settings_of
from heedful.tasks.spec import Opening, spec_named, spec_of_run
from heedful.tasks.summary.encoding import collect, encode, encode_text, spelled, words_of, written
from heedful.tasks.summary.examples import Summarised, SummaryFiles, ToSummarise
from heedful.tasks.summary.training import targets_of

PLACES = ["garden", "office", "kitchen", "school", "museum", "market"]
RECIPE: dict[str, Any] = {
    "task": "summary",
    "data": {
        "train": "train.jsonl",
        "validation": "test.jsonl",
        "test": "test.jsonl",
        "longest_source": 14,
        "longest_summary": 6,
    },
    "model": {
        "kind": "pointer-generator",
        "embedding_size": 24,
        "hidden_size": 32,
        "coverage": True,
        "dropout": 0.0,
    },
    "training": {
        "learning_rate": 0.01,
        "warmup_steps": 10,
        "schedule": "constant",
        "max_steps": 70,
        "validate_every": 35,
        "checkpoint_every": 35,
        "batch_tokens": 500,
        "choose_by": "rouge1",
        "coverage": 0.1,
        "precision": "float32",
        "device": "cpu",
        "threads": 1,
    },
    "decoding": {"beam": 2, "block_ngrams": 2},
}


def tell(rng: random.Random) -> dict[str, Any]:
    """A text with a name that no other text has, and its summaries."""
    name = "".join(rng.choices("bdfgklmnprstvz", k=7))
    place = rng.choice(PLACES)
    source = [f"Yesterday {name} went to the {place}.", "It was a rainy day."]
    return {"source": source, "target": [f"{name} in the {place}", f"{name} went out"]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path, rng = tmp_path_factory.mktemp("summaries"), random.Random(1)
    for part, count in (("train", 400), ("test", 30)):
        rows = [tell(rng) for _ in range(count)]
        lines = [
            json.dumps({**one, "target": one["target"][: 1 if part == "train" else 2]})
            for one in rows
        ]
        (path / f"{part}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    heedful.train(RECIPE, path / "run", data=path)
    return path


def call(*arguments: str, **how: Any) -> Any:
    app = typer.Typer()
    task_commands.register(app)
    evaluate.register(app)  # with several commands, each is called by its name
    return CliRunner().invoke(app, list(arguments), **how)


def test_it_copies_names_that_are_not_in_the_vocabulary(folder: Path) -> None:
    run, spec = spec_of_run(folder / "run")
    found = spec.evaluate(run, None, None, Opening(device="cpu"))
    assert found.figures["ROUGE-1"].value > 60
    assert found.figures["ROUGE-1"].low is not None
    text = "Yesterday Zorblax went to the office. It was a rainy day."
    [summary] = heedful.load(folder / "run", device="cpu").predict([{"source": text}])
    assert summary.text.startswith("zorblax")
    first = summary.words[0]
    assert (first.word, first.position, first.source) == ("zorblax", 2, "zorblax")
    assert first.generated < 0.5 < first.weight
    assert "zorblax" not in run.facts["known"]["words"]
    assert json.loads(json.dumps(summary.to_json()))["words"][0]["position"] == 2


def test_figures_are_means_over_examples_that_can_be_compared(folder: Path) -> None:
    run, spec = spec_of_run(folder / "run")
    found = spec.evaluate(run, None, None, Opening(device="cpu"))
    assert found.examples is not None
    given = found.examples.measures["ROUGE-2"]
    again = measure("ROUGE-2", given, found.examples.outputs, found.examples.references)
    assert again.value_of_sum(again.values.sum(0)) == pytest.approx(found.figures["ROUGE-2"].value)


def test_a_stopped_training_is_resumed_exactly(folder: Path) -> None:
    first = {**RECIPE["training"], "max_steps": 35}
    heedful.train({**RECIPE, "training": first}, folder / "stopped", data=folder)
    assert heedful.train(RECIPE, folder / "stopped", data=folder)
    one, other = (
        load_file(folder / run / "checkpoints" / "step-00000070" / "model.safetensors")
        for run in ("run", "stopped")
    )
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_strings_are_no_inputs(folder: Path) -> None:
    with pytest.raises(UserError, match="input 1 is a text; give its fields as a dictionary"):
        heedful.load(folder / "run", device="cpu").predict(["a text"])


def test_a_text_alone_and_in_a_batch_has_the_same_summary(folder: Path) -> None:
    predictor, rng = heedful.load(folder / "run", device="cpu"), random.Random(3)
    rows = [{"source": " ".join(tell(rng)["source"][: 1 + n % 2])} for n in range(7)]
    singly = [predictor.predict([one])[0] for one in rows]
    for one, other in zip(predictor.predict(rows), singly, strict=True):
        assert one.text == other.text
        assert one.log_probability == pytest.approx(other.log_probability, abs=1e-5)
        for word, same in zip(one.words, other.words, strict=True):
            assert word.generated == pytest.approx(same.generated, abs=1e-5)


def test_the_command_summarises_lines_and_tables(folder: Path, tmp_path: Path) -> None:
    text = "Yesterday Zorblax went to the office. It was a rainy day."
    found = call("summarise", str(folder / "run"), "--copies", input=f"{text}\n\n{text}\n")
    assert found.exit_code == 0, found.output
    lines = found.stdout.splitlines()
    assert lines[0].startswith("zorblax[2, ")
    assert lines[1] == ""
    assert lines[2] == lines[0]
    table = tmp_path / "mails.csv"
    table.write_text(f'subject,body\nx,"{text}"\n', encoding="utf-8")
    found = call("summarise", str(folder / "run"), str(table), "--column", "body", "--json")
    assert json.loads(found.stdout)["text"].startswith("zorblax")
    found = call("summarise", str(folder / "run"), str(table))
    assert isinstance(found.exception, UserError)
    assert "no column 'source'" in str(found.exception)


def test_what_was_not_read_or_written_is_in_the_result(folder: Path, tmp_path: Path) -> None:
    reader = heedful.load(folder / "run", device="cpu")
    text = {"source": "Yesterday Zorblax went to the office."}
    [whole] = reader.predict([text])
    assert not {"unread_words", "at_limit"} & set(whole.to_json())
    changed = {"cuts": True, "longest_source": 6, "longest_summary": 1}
    reader.known = {**reader.known, **changed}
    reader.options = reader.options.model_copy(update={"beam": 1})
    [cut] = reader.predict([text])
    assert cut.to_json()["unread_words"] == 1
    assert cut.to_json()["at_limit"] is True


def test_counts_of_a_command_are_of_all_lines(folder: Path, tmp_path: Path) -> None:
    run = str(folder / "run")
    lines = "".join(f"{' '.join(['zorblax'] * 9)}\n\n" for _ in range(70))
    stopped = call("summarise", run, input=lines)
    assert stopped.stdout.count("\n") == 140
    counts = re.findall(r"summaries ended after .*: (\d+) of (\d+)", stopped.stderr)
    assert len(counts) <= 1
    assert all(total == "70" for _, total in counts)
    rows = tmp_path / "texts.jsonl"
    rows.write_text('{"source": "Yesterday Zorblax went."}\n\n{"source": "It was a day."}\n')
    found = call("summarise", run, str(rows)).stdout.split("\n")
    assert len(found) == 4
    assert found[1] == ""
    for beam in ("0", "-1", "500"):
        done = call("summarise", run, "--beam", beam, input="A text.\n")
        assert isinstance(done.exception, UserError)
        assert "beam" in str(done.exception)


def test_a_sample_depends_on_the_line_and_not_on_the_batch(folder: Path) -> None:
    predictor = heedful.load(folder / "run", device="cpu")
    predictor.options = check(
        type(predictor.options), {"sample": True, "seed": 3, "temperature": 3.0}, "the options"
    )
    rows = [{"source": "Yesterday Zorblax went to the office."}] * 66
    found = [one.text for one in predictor.predict(rows)]
    assert found[0] != found[64]
    assert [one.text for one in predictor.predict(rows[:2], keys=[64, 65])] == found[64:]


def test_a_trace_says_what_is_copied(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "trace.safetensors"
    text = "Yesterday Zorblax went to the office. It was a rainy day."
    found = call("summarise", str(folder / "run"), "--trace", str(file), input=text + "\n")
    assert found.exit_code == 0, found.output
    trace = Trace.load(file)
    assert trace.axes["source"].labels is not None
    assert trace.axes["source"].labels[1] == "zorblax"
    shares = trace["p_gen"].weights[0]
    assert trace.axes["origin"].labels == ["vocabulary", "copied"]
    torch.testing.assert_close(shares.sum(1), torch.ones(len(shares)))
    copied, attention = trace["copied"].weights[0], trace["attention"].weights[0]
    torch.testing.assert_close(copied, shares[:, 1:] * attention)
    assert int(copied[0].argmax()) == 1
    torch.testing.assert_close(trace["coverage"].weights[0, 2], attention[:2].sum(0))


def test_rouge_is_the_packages_on_the_best_reference() -> None:
    outputs = ["the cats sat", "a b c d", ""]
    references = [["the cat sat on the mat", "cats"], ["d c b a", "a b x y"], ["something"]]
    values = rouge_values(outputs, references)
    # ROUGE-1 of the first: 3 of 3 words, 3 of 6 words of the reference; bigrams 2 of 2 and 2 of 5.
    np.testing.assert_allclose(values[0], [2 / 3, 4 / 7, 2 / 3])
    np.testing.assert_allclose(values[1], [1.0, 0.0, 0.25])
    np.testing.assert_allclose(values[2], 0.0)
    each = rouge_values(outputs, references, several="each")
    np.testing.assert_allclose(each[1], [1.0, 1 / 3, 0.5])
    figures = rouge_figures(values)
    assert figures["ROUGE-L"].value == pytest.approx(100 * values[:, 2].mean())
    assert "references:best" in str(figures["ROUGE-L"].signature)
    assert set(measures(values)) == set(figures)
    with pytest.raises(ValueError, match="1 outputs for 2"):
        rouge_values(["a"], [["a"], ["b"]])


def test_rouge_knows_the_words_of_all_scripts() -> None:
    texts = [
        "Кошка сидит на ковре.",
        "Η γάτα κάθεται",
        "猫坐在垫子上。",
        "แมวนั่ง",
        "बिल्ली बैठी है",
        "déjà vu",
    ]
    np.testing.assert_allclose(rouge_values(texts, [[one] for one in texts]), 1.0)
    others = [
        "кошка",
        "η σκύλος",
        "狗坐在垫子上",
        "แมว",
        "बिल्ला",
        "de\u0301ja\u0300 vu \u2764\ufe0f",
    ]
    values = rouge_values(others, [[one] for one in texts])[:, 0]
    np.testing.assert_allclose(values, [2 / 5, 2 / 5, 10 / 12, 6 / 10, 0, 1])


def test_rouge_of_ascii_texts_is_the_packages() -> None:
    chance = random.Random(5)
    parts = [*string.printable, *string.ascii_letters, " ", "running ", "dogs, ", "Nationally "]
    scorer = RougeScorer(["rouge1", "rouge2", "rougeL"], use_stemmer=True)
    for _ in range(200):
        one, other = ("".join(chance.choices(parts, k=40)) for _ in range(2))
        expected = [each.fmeasure for each in scorer.score(one, other).values()]
        np.testing.assert_array_equal(rouge_values([other], [[one]])[0], expected)


class Listed:
    """A decodable with the same logits at every step."""

    def __init__(self, logits: Tensor) -> None:
        self.logits = logits

    def start(self, source: Tensor) -> TensorState:
        return TensorState(rows=torch.zeros(len(source)))

    def step(self, tokens: Tensor, state: TensorState) -> tuple[Tensor, TensorState]:
        return self.logits.expand(len(tokens), -1), state


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("beam", [1, 4])
def test_no_ngram_is_repeated(size: int, beam: int) -> None:
    logits = torch.tensor([-9.0, -9.0, -9.0, -6.0, 3.0, 2.0, 1.0])
    options = SearchOptions(beam=beam, length_penalty=5.0)
    how = {"rows": 2, "options": options, "max_lengths": torch.tensor([12, 5])}
    source = torch.zeros(2, 1)
    free = search(Listed(logits), source, **how)  # type: ignore[arg-type]
    assert list(free[0][0].tokens) == [4] * 11
    found = search(NoRepeats(Listed(logits), size), source, **how)  # type: ignore[arg-type]
    for hypotheses in found:
        tokens = hypotheses[0].tokens
        grams = [tuple(tokens[i : i + size]) for i in range(len(tokens) - size + 1)]
        assert len(set(grams)) == len(grams)
    if beam == 1:
        wanted = {1: [4, 5, 6], 2: [4, 4, 5, 4, 6, 4], 3: [4, 4, 4, 5, 4, 4, 6, 4, 4]}
        assert list(found[0][0].tokens) == wanted[size]
    with pytest.raises(ValueError, match="at least one token"):
        NoRepeats(Listed(logits), 0)


def known_of(**data: Any) -> dict[str, Any]:
    files = SummaryFiles.model_validate({"train": ["x"], "minimum_count": 2, **data})
    some = [Summarised(source="the dog sees the dog", targets=["the dog"])]
    return collect(some, files, 8)


def test_unknown_words_of_a_text_extend_the_vocabulary() -> None:
    known = known_of()
    size = words_of(known).size
    text = encode_text("The Zorb sees a dog, Zorb!", known)
    the, dog = words_of(known).encode("the dog")
    assert text.tokens == [the, size, size + 1, size + 2, dog, size + 3, size, size + 4]
    assert text.unknown == ["zorb", "sees", "a", ",", "!"]
    example = Summarised(source="The Zorb sees a dog", targets=["a Zorb never", "the dog"])
    row = encode(example, known)
    assert row["targets"] == [[size + 2, size, UNKNOWN], [the, dog, PAD]]
    assert spelled(row["targets"][0], text.unknown, known) == ["a", "zorb", "<unk>"]
    assert written(["the", "dog", "(", "x", ")", "!"]) == "the dog (x)!"


def test_long_texts_are_cut_only_if_asked_for() -> None:
    long = "one two three four five six seven eight nine"
    with pytest.raises(UserError, match="9 words, more than the model's 8"):
        encode_text(long, known_of())
    with pytest.raises(UserError, match=r"^line 3 has 9 words, more than"):
        spec_named("summary").encode(ToSummarise(source=long).named("line 3"), known_of())
    assert len(encode_text(long, known_of(longest_source=5)).words) == 5


def test_texts_that_are_cut_or_left_out_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [
        {"source": "one two three " * n, "target": t}
        for n, t in ((1, ["one", "x " * 7]), (5, "two"), (1, "x " * 9))
    ]
    training = {**RECIPE["training"], "max_steps": 1, "choose_by": "loss", "coverage": 0.0}
    for given, said in (
        ({"longest_source": 4}, "train texts cut to 4 words (data.longest_source): 1"),
        ({}, "1 of 3 train examples left out: their text has more than 9 words"),
    ):
        model = {**RECIPE["model"], "max_length": 10}
        data = {"longest_summary": 6, "minimum_count": 1, **given}
        tables = {**RECIPE, "data": data, "model": model, "training": training}
        heedful.train(tables, tmp_path / f"run{len(given)}", data={"train": rows})
        printed = capsys.readouterr().err
        assert said in printed
        assert "1 of 3 train examples left out: their summaries have" in printed
        assert "train summaries left out, because they have no words or more than 6" in printed
        assert "(data.longest_summary): 1; other" in printed


def test_a_run_starts_from_another_one(folder: Path) -> None:
    training = {**RECIPE["training"], "coverage": 1.0, "max_steps": 1, "validate_every": 1}
    tables = {**RECIPE, "training": {**training, "learning_rate": 1e-9}}
    assert heedful.train(tables, folder / "second", data=folder, start_from=folder / "run")
    first, second = (spec_of_run(folder / name)[0] for name in ("run", "second"))
    assert first.facts["known"]["words"] == second.facts["known"]["words"]
    one, other = (run.chosen().weights()["bias"] for run in (first, second))
    torch.testing.assert_close(one, other, atol=1e-6, rtol=0)


@pytest.mark.parametrize(("name", "value"), [("lower_case", False), ("split", "spaces")])
def test_a_start_has_the_same_words(folder: Path, tmp_path: Path, name: str, value: Any) -> None:
    tables = {**RECIPE, "data": {**RECIPE["data"], name: value}}
    with pytest.raises(UserError, match=f"data.{name} differs from that of the run"):
        heedful.train(tables, tmp_path / "run", data=folder, start_from=folder / "run")
    made = {**tables, "training": {**RECIPE["training"], "max_steps": 1, "validate_every": 1}}
    heedful.train(made, tmp_path / "start", data=folder)
    chosen = spec_of_run(tmp_path / "start")[1].adapt_chosen(RECIPE, open_run(tmp_path / "start"))
    assert chosen["data"][name] == value


def test_validation_texts_that_are_left_out_are_not_summarised(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"source": f"one two {word} three", "target": word} for word in "abcdefgh"]
    validation = [{"source": "one " * 20, "target": "one"}, *rows[:3]]
    training = {**RECIPE["training"], "max_steps": 1, "validate_every": 1, "checkpoint_every": 1}
    tables = {
        **RECIPE,
        "data": {"longest_summary": 6, "minimum_count": 1},
        "model": {**RECIPE["model"], "max_length": 10},
        "training": training,
    }
    data = {"train": rows, "validation": validation}
    assert heedful.train(tables, tmp_path / "run", data=data)
    said = "1 of 4 validation examples left out: their text has more than 9 words"
    assert said in capsys.readouterr().err


def test_the_benchmark_knows_its_baselines(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[1] / "benchmarks"))
    summaries = __import__("summaries")
    rows = {
        "scitldr-a": {"source": ["A cat.", "It sat on a mat."], "target": ["sat on mats", "dog"]},
        "aeslc": {"source": "A cat. It sat.", "target": ["it sat", "cats"]},
    }
    for name, row in rows.items():
        (tmp_path / name).mkdir()
        with lzma.open(tmp_path / name / "test.jsonl.xz", "wt", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
    [paper] = summaries.examples(tmp_path, "scitldr", "test")
    assert summaries.first_sentence(paper) == "A cat."
    assert summaries.oracle(paper) == "It sat on a mat."
    assert len(paper["targets"]) == 2
    [mail] = summaries.examples(tmp_path, "aeslc", "test")
    assert (summaries.oracle(mail), summaries.person(mail)) == ("It sat.", "cats")
    assert summaries.first_words(mail, 3) == "A cat. It"
    given = ["--data", str(tmp_path), "--out", str(tmp_path / "out"), "--baselines"]
    assert summaries.main(given) == 0
    assert len(list((tmp_path / "out").glob("*.json"))) == 6


def test_the_benchmark_goes_on_after_a_system_that_diverges(
    tmp_path: Path, monkeypatch: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[1] / "benchmarks"))
    summaries = __import__("summaries")
    trained: list[tuple[str, int, float]] = []

    def result(name: str, seed: int, rate: float, options: Any) -> dict[str, Any]:
        if (name, seed) == ("scitldr-no-copy", 2):
            raise summaries.DivergedError("the loss is not finite")
        trained.append((name, seed, rate))
        return {}

    chosen = SimpleNamespace(state={"validation": {"rouge1": 20.0}})
    run = SimpleNamespace(chosen=lambda: chosen)
    monkeypatch.setattr(summaries, "baseline", lambda *given: {})
    monkeypatch.setattr(summaries, "trained", lambda *given: tmp_path)
    monkeypatch.setattr(summaries, "spec_of_run", lambda path: (run, None))
    monkeypatch.setattr(summaries, "result", result)
    names = ["scitldr-no-copy", "aeslc-no-copy"]
    given = ["--data", str(tmp_path), "--out", str(tmp_path), "--seeds", "1", "2"]
    assert summaries.main([*given, "--rates", "1e-3", "--recipes", *names]) == 2
    assert trained == [(names[0], 1, 1e-3), (names[1], 1, 1e-3), (names[1], 2, 1e-3)]
    assert "summaries: scitldr-no-copy: the loss is not finite" in capsys.readouterr().err


def test_the_benchmark_reports_learning_rates_and_steps_apart(
    tmp_path: Path, monkeypatch: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[1] / "benchmarks"))
    summaries = __import__("summaries")
    runs = [(1, 1e-3, None, 30.0), (1, 2e-3, None, 40.0), (2, 2e-3, None, 42.0), (1, 2e-3, 20, 1.0)]
    for number, (seed, rate, steps, value) in enumerate(runs):
        figures = {name: [value, value - 1, value + 1] for name in summaries.NAMES.values()}
        row = {"corpus": "aeslc", "system": "aeslc-no-copy", "seed": seed, "figures": figures}
        row |= {"rate": rate, "max_steps": steps}
        (tmp_path / f"{number}.json").write_text(json.dumps(row))
    assert summaries.main(["--out", str(tmp_path), "--collect"]) == 0
    lines = capsys.readouterr().out.splitlines()[2:4]
    assert [line.split()[5:9] for line in lines] == [
        ["0.001", "|", "1", "|"],
        ["0.002", "|", "2", "|"],
    ]
    assert "30.0 [29.0, 31.0]" in lines[0]
    assert "41.0 ± 1.4" in lines[1]


def test_every_summary_of_a_text_is_a_target() -> None:
    from heedful.data import columns

    codecs = {"source": columns.tokens(50), "targets": columns.texts(50)}
    rows = [
        {"source": [5, 6], "targets": [[7, 8], [9, PAD]]},
        {"source": [5], "targets": [[6]]},
    ]
    found = targets_of(ColumnBatch.of_rows(rows, codecs))
    assert found.owners.tolist() == [0, 0, 1]
    assert found.labels.tolist() == [[7, 8, END], [9, END, PAD], [6, END, PAD]]
    assert found.target_in.tolist() == [[2, 7, 8], [2, 9, PAD], [2, 6, PAD]]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.jsonl", '{"source": "a b", "target": " "}\n', "a.jsonl:1: 'target' is empty"),
        ("a.jsonl", '{"source": "", "target": "a"}\n', "a.jsonl:1: 'source' is empty"),
        ("a.jsonl", '{"source": ["", " "], "target": "a"}\n', "a.jsonl:1: 'source' is empty"),
        ("a.jsonl", '{"source": "a", "target": []}\n', "a.jsonl:1: 'target' is empty"),
        ("a.jsonl", '{"text": "a", "target": "b"}\n', "there is no field 'source'"),
        ("a.jsonl", '{"source": 3, "target": "b"}\n', "must be a text or a list of texts"),
        ("a.tsv", "source\ttarget\na\t\n", "a.tsv:2: 'target' is empty"),
        ("a.tsv", "source\tsummary\na\tb\n", "a.tsv:1: there is no column 'target'"),
        ("a.csv", "text,target\na,b\n", "a.csv:1: there is no column 'source'"),
        ("a.csv", "source,target\na\n", "a.csv:2: columns: 1, but 2 in"),
        ("a.tsv", "x" * 9000 + "\tb\n", f"known names: '{'x' * 60}…', 'b' ("),
    ],
)
def test_bad_files_are_one_line(tmp_path: Path, name: str, text: str, said: str) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(UserError) as error:
        list(read_summaries(str(tmp_path / name), source="source", target="target"))
    assert said in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("\ufeffsource,target\r\na,b\r\n", "utf-8"),
        ("source,target\na,b\n", "utf-16-be"),
        ("\n\nsource,target\na,b\n", None),
        ('"a\nnote",source,target\n1,a,b\n', None),
    ],
)
def test_headers_are_read_as_the_rows_are(tmp_path: Path, text: str, encoding: Any) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(text.encode(encoding or "utf-8"))
    found = read_summaries(str(path), source="source", target="target", encoding=encoding)
    assert [(one.source, one.targets) for one in found] == [("a", ["b"])]
    with pytest.raises(UserError, match="unknown encoding 'nonsense'"):
        list(read_summaries(str(path), source="source", target="target", encoding="nonsense"))


def test_the_option_for_the_column_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("body\na b\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"no column 'source'.*--column names the column"):
        list(read_summaries(str(tmp_path / "a.csv"), source="source", target=None))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.tsv", "source\ttarget\na\tx\n\n\nb\ty\n"),
        ("a.csv", "source,target\na,x\n\n\nb,y\n"),
        ("a.jsonl", '{"source": "a"}\n\n\n{"source": "b"}\n'),
    ],
)
def test_empty_lines_of_a_table_keep_their_place(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    found = read_texts_to_summarise(str(tmp_path / name), "source", None)
    assert list(found) == ["a", None, None, "b"]


def test_all_formats_have_the_same_examples(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('id,source,target\n1,"a, b",c d\n', encoding="utf-8")
    (tmp_path / "a.tsv").write_text("target\tsource\nc d\ta, b\n", encoding="utf-8")
    (tmp_path / "a.jsonl").write_text(
        '{"source": ["a,", "", " b "], "target": ["c d"], "title": "t"}\n\n', encoding="utf-8"
    )
    for name in ("a.csv", "a.tsv", "a.jsonl"):
        [found] = read_summaries(str(tmp_path / name), source="source", target="target")
        assert (found.source, found.targets) == ("a, b", ["c d"])
    [found] = read_summaries(str(tmp_path / "a.csv"), source="source", target=None)
    assert found.targets == []


@pytest.mark.parametrize(
    ("table", "given", "said"),
    [
        ("data", {"longest_source": 600}, "data.longest_source = 600 must be less"),
        ("training", {"validation_examples": 0, "choose_by": "rouge1"}, "validation_examples"),
        ("model", {"kind": "aligner"}, "writes no summaries"),
        (
            "model",
            {"kind": "transformer", "copy_source": "only"},
            "copy_source = 'only' writes no",
        ),
    ],
)
def test_recipes_that_cannot_work_are_refused(table: str, given: Any, said: str) -> None:
    tables: dict[str, Any] = {"task": "summary", "data": {"train": "a.jsonl"}}
    tables[table] = {**tables.get(table, {}), **given}
    with pytest.raises(UserError, match=said):
        check_recipe(tables, "the recipe")


def test_a_coverage_loss_needs_weights_that_cover(folder: Path) -> None:
    model = {"kind": "transformer", "layers": 1, "hidden_size": 8, "heads": 2, "ffn_size": 8}
    tables = {**RECIPE, "model": {**model, "copy_source": False}}
    with pytest.raises(UserError, match=r"training\.coverage needs a model that copies"):
        heedful.train(tables, folder / "refused", data=folder)


@pytest.mark.parametrize("copy_source", [True, False])
def test_transformers_summarise(folder: Path, copy_source: bool) -> None:
    model = {"kind": "transformer", "layers": 1, "hidden_size": 16, "heads": 2, "ffn_size": 16}
    training = {**RECIPE["training"], "max_steps": 4, "coverage": 0.0, "validate_every": 4}
    tables = {**RECIPE, "model": {**model, "copy_source": copy_source}, "training": training}
    out = folder / f"transformer-{copy_source}"
    heedful.train(tables, out, data=folder)
    predictor = heedful.load(out, device="cpu")
    [found] = predictor.predict([{"source": "Yesterday Zorblax went to the office."}])
    assert bool(found.words) == (copy_source and bool(found.text))
    trace = predictor.trace(predictor.spec.read_input("Yesterday Zorblax went to the office."))
    assert ("copied" in {one.name for one in trace.maps}) == copy_source


def test_a_corpus_alone_is_enough(folder: Path) -> None:
    _, spec = spec_of_run(folder / "run")
    tables = spec.choose_recipe(["train.jsonl"], folder=folder)
    recipe = check_recipe(tables, "the recipe")
    assert recipe.task == "summary"


def test_a_corpus_alone_may_have_other_columns(tmp_path: Path) -> None:
    rng = random.Random(6)
    rows = [tell(rng) for _ in range(30)]
    (tmp_path / "mails.jsonl").write_text(
        "".join(
            json.dumps({"body": " ".join(one["source"]), "subject": one["target"]}) + "\n"
            for one in rows
        )
    )
    columns = {"source_column": "body", "target_column": "subject"}
    given = [f"data.{name}={value}" for name, value in columns.items()]
    _, choose = settings_of("summarise", {}, given, chosen=True)
    tables = choose([str(tmp_path / "mails.jsonl")])
    assert {name: tables["data"][name] for name in columns} == columns
    with pytest.raises(UserError, match="there is no field 'source'"):
        settings_of("summarise", {}, [], chosen=True)[1]([str(tmp_path / "mails.jsonl")])
    _, choose = settings_of("summarise", {}, ["data.references=some"], chosen=True)
    with pytest.raises(UserError, match="references"):
        choose([str(tmp_path / "mails.jsonl")])


def test_python_rows_have_a_text_and_summaries(tmp_path: Path) -> None:
    rng = random.Random(5)
    rows = [tell(rng) for _ in range(12)]
    given = [{"source": " ".join(one["source"]), "target": one["target"]} for one in rows]
    training = {**RECIPE["training"], "max_steps": 1, "validate_every": 1}
    data = {"longest_source": 14, "longest_summary": 6}
    tables = {**RECIPE, "data": data, "training": training}
    parts = {"train": given, "validation": given[:3], "test": given[:2]}
    heedful.train(tables, tmp_path / "run", data=parts)
    run, _ = spec_of_run(tmp_path / "run")
    assert run.facts["data"]["train"] == 12
    with pytest.raises(UserError, match="none is empty"):
        heedful.train(tables, tmp_path / "bad", data={"train": [{"source": "a", "target": ""}]})


def test_source_is_read_with_end() -> None:
    from heedful.data import columns
    from heedful.models import build_model
    from heedful.models.pointer_generator import PointerGeneratorSettings
    from heedful.tasks.summary.training import source_of

    codecs = {"source": columns.tokens(50)}
    batch = ColumnBatch.of_rows([{"source": [5, 12]}, {"source": [11]}], codecs)
    for copies, extended in ((True, 12), (False, UNKNOWN)):
        settings = PointerGeneratorSettings(embedding_size=4, hidden_size=4, copy_source=copies)
        source = source_of(batch, build_model(settings, 12, 12), 12)
        assert isinstance(source, Source)
        assert source.tokens.tolist() == [[5, extended, END], [11, END, PAD]]
        assert source.lengths.tolist() == [3, 2]
