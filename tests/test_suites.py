"""Readers, metrics and submissions of GLUE, SuperGLUE and Russian SuperGLUE."""

import json
import random
import re
import string
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

from heedful.basics.errors import UserError
from heedful.data.examples import Labelled
from heedful.data.readers import read_labelled
from heedful.data.suites.forms import Item
from heedful.data.suites.reading import find_file, read_items, read_rows
from heedful.data.suites.submissions import write_submission
from heedful.data.suites.tasks import TASKS, SuiteTask, task_named, tasks_of
from heedful.evaluation.correlation import correlations
from heedful.evaluation.suites import (
    answer_of,
    score_answers,
    score_items,
    suite_average,
    task_score,
    word_f1,
)
from heedful.runs.recipe import check_recipe
from suite_help import write_file, write_suite_task

DATA = Path(__file__).parents[1] / "../shared/data"
real_data = pytest.mark.skipif(not DATA.exists(), reason="the folder of real data is not here")
by_task = pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)


def items_in(folder: Path, name: str, task: SuiteTask) -> list[Item]:
    return list(read_items(folder / name, task))


def drawn(labels: tuple[str, ...], count: int, seed: int) -> list[str]:
    rng = random.Random(seed)
    return [rng.choice(labels) for _ in range(count)]


# Metrics


@pytest.mark.parametrize("key", ["glue/cola", "glue/mrpc", "superglue/cb", "superglue/boolq"])
def test_labels_are_scored_as_sklearn_scores_them(key: str) -> None:
    task = task_named(key)
    gold, given = drawn(task.labels, 50, 1), drawn(task.labels, 50, 2)
    found = score_answers(gold, given, task)
    expected = {
        "matthews": matthews_corrcoef(gold, given),
        "accuracy": accuracy_score(gold, given),
        "macro_f1": f1_score(gold, given, average="macro"),
    }
    if key == "glue/mrpc":
        expected["f1"] = f1_score([int(one) for one in gold], [int(one) for one in given])
    assert list(found) == list(task.metrics)
    for name, value in found.items():
        assert value == pytest.approx(100 * expected[name], abs=1e-9)


def test_constant_answers_have_no_correlation() -> None:
    gold = ["0", "1", "1"]
    assert score_answers(gold, ["1"] * 3, task_named("glue/cola")) == {"matthews": 0.0}
    assert matthews_corrcoef(gold, ["1"] * 3) == 0.0
    found = score_answers(["neutral"] * 2, ["neutral"] * 2, task_named("superglue/cb"))
    assert found["macro_f1"] == pytest.approx(100 / 3)  # of the three labels of the task


@pytest.mark.parametrize("key", ["glue/ax", "glue/rte"])
def test_matthews_is_that_of_sklearn_for_any_number_of_labels(key: str) -> None:
    task = task_named(key)
    ax = task_named("glue/ax")
    for seed in range(20):
        gold, given = drawn(task.labels, 9, seed), drawn(task.labels, 9, seed + 50)
        found = score_answers(gold, given, ax)["matthews"]
        assert found == pytest.approx(100 * matthews_corrcoef(gold, given), abs=1e-9)


def test_numbers_are_scored_as_scipy_scores_them() -> None:
    rng = np.random.default_rng(3)
    gold, given = rng.uniform(0, 5, 40).tolist(), rng.uniform(0, 5, 40).tolist()
    found = score_answers(gold, given, task_named("glue/sts-b"))
    expected = pearsonr(gold, given).statistic, spearmanr(gold, given).statistic
    assert list(found.values()) == pytest.approx([100 * one for one in expected], abs=1e-9)


def test_almost_constant_numbers_have_no_correlation(recwarn: pytest.WarningsRecorder) -> None:
    nearly = [0.1 + 0.2, 0.3, 0.3, 0.3]
    for one, other in ((nearly, [1, 2, 3, 4]), ([1, 2, 3, 4], nearly)):
        assert correlations(one, other) == {"pearson": 0.0, "spearman": 0.0}
    assert not recwarn


def test_multirc_is_scored_as_its_paper_defines() -> None:
    """F1a: all answers together. EM: questions with every answer right."""
    rng = random.Random(4)
    gold = [tuple(rng.choice("01") for _ in range(rng.randint(2, 6))) for _ in range(30)]
    given = [tuple(rng.choice("001") if rng.random() < 0.4 else x for x in one) for one in gold]
    true = claimed = right = whole = 0
    for labels, answers in zip(gold, given, strict=True):
        ok = True
        for label, answer in zip(labels, answers, strict=True):
            true += label == "1"
            claimed += answer == "1"
            right += label == answer == "1"
            ok = ok and label == answer
        whole += ok
    precision, recall = right / claimed, right / true
    found = score_answers(gold, given, task_named("superglue/multirc"))
    assert 0 < whole < 30
    assert found["f1a"] == pytest.approx(100 * 2 * precision * recall / (precision + recall))
    assert found["exact_match"] == pytest.approx(100 * whole / 30)


def test_multirc_by_hand() -> None:
    gold, given = [("1", "0"), ("1", "1", "0")], [("1", "0"), ("1", "0", "0")]
    found = score_answers(gold, given, task_named("superglue/multirc"))
    assert found == {"f1a": pytest.approx(80.0), "exact_match": 50.0}  # 2 of 2 claimed, 2 of 3


def squad_words(text: str) -> list[str]:
    kept = "".join(one for one in text.lower() if one not in string.punctuation)
    return [word for word in re.split(r"\s+", kept) if word and word not in ("a", "an", "the")]


def test_record_is_scored_as_its_paper_defines() -> None:
    """The best of all right answers: F1 of the words, and whether they are equal."""
    names = ["The New York Times", "New York", "U.S.", "US", "Anna Smith", "Smith", "a Smith-Jones"]
    rng = random.Random(5)
    gold = [tuple(rng.sample(names, rng.randint(1, 3))) for _ in range(40)]
    given = [rng.choice(names) for _ in range(40)]
    overlap, exact = 0.0, 0
    for right, answer in zip(gold, given, strict=True):
        best, same = 0.0, False
        for one in right:
            first, second = squad_words(one), squad_words(answer)
            common = sum(min(first.count(word), second.count(word)) for word in set(first))
            if common:
                precision, recall = common / len(second), common / len(first)
                best = max(best, 2 * precision * recall / (precision + recall))
            same = same or first == second
        overlap, exact = overlap + best, exact + same
    found = score_answers(gold, given, task_named("superglue/record"))
    assert found["token_f1"] == pytest.approx(100 * overlap / 40)
    assert found["exact_match"] == pytest.approx(100 * exact / 40)
    assert 0 < exact < 40


def test_words_by_hand() -> None:
    assert word_f1("The United States of America", "the U.S. of America") == pytest.approx(4 / 7)
    assert word_f1("the", "a") == 0.0
    assert word_f1("Anna", "Ben") == 0.0


def test_gender_parity_asks_for_equal_answers_and_not_for_right_ones() -> None:
    gold = ["entailment"] * 6
    given = ["entailment", "entailment", "not_entailment", "not_entailment", "entailment", "other"]
    found = score_answers(gold, given, task_named("superglue/ax-g"))
    assert found["gender_parity"] == pytest.approx(100 * 2 / 3)
    assert found["accuracy"] == pytest.approx(50.0)


# Published rows of the leaderboards: BERT-large (GLUE, and SuperGLUE's paper, table 3), and RuBERT
# plain (Russian SuperGLUE).
ROWS: dict[str, tuple[float, dict[str, list[float]]]] = {
    "glue": (
        80.5,
        {
            "cola": [60.5],
            "sst-2": [94.9],
            "mrpc": [89.3, 85.4],
            "sts-b": [87.6, 86.5],
            "qqp": [72.1, 89.3],
            "mnli": [86.7, 85.9],
            "qnli": [92.7],
            "rte": [70.1],
            "wnli": [65.1],
            "ax": [39.6],
        },
    ),
    "superglue": (
        69.0,
        {
            "boolq": [77.4],
            "cb": [75.7, 83.6],
            "copa": [70.6],
            "multirc": [70.0, 24.1],
            "record": [72.0, 71.3],
            "rte": [71.7],
            "wic": [69.6],
            "wsc": [64.4],
            "ax-b": [23.0],
            "ax-g": [97.8, 51.7],
        },
    ),
    "russian-superglue": (
        52.1,
        {
            "lidirus": [19.1],
            "rcb": [36.7, 46.3],
            "parus": [57.4],
            "muserc": [71.1, 32.4],
            "terra": [64.2],
            "russe": [72.6],
            "rwsd": [66.9],
            "danetqa": [63.9],
            "rucos": [32.0, 31.4],
        },
    ),
}


@pytest.mark.parametrize("suite", ROWS)
def test_averages_are_those_of_the_leaderboards(suite: str) -> None:
    average, figures = ROWS[suite]
    scores = {
        f"{suite}/{name}": task_score({str(place): one for place, one in enumerate(own)})
        for name, own in figures.items()
    }
    found = suite_average(suite, scores)
    assert found is not None
    assert round(found, 1) == average
    for task in tasks_of(suite):
        others = {key: score for key, score in scores.items() if key != task.key}
        assert (suite_average(suite, others) is None) == task.counted


# Examples as texts


def test_the_tasks_are_those_of_the_benchmarks() -> None:
    counted = Counter(task.suite for task in TASKS.values() if task.counted)
    assert counted == {"glue": 9, "superglue": 8, "russian-superglue": 9}
    others = [task.key for task in TASKS.values() if not task.counted]
    assert others == ["glue/ax", "superglue/ax-b", "superglue/ax-g", "russian-superglue/rucola"]


@by_task
def test_files_in_the_official_format_are_read_whole(task: SuiteTask, tmp_path: Path) -> None:
    folder = write_suite_task(tmp_path, task, 12)
    for part in ("train", "dev", "test"):
        for name in getattr(task, part):
            items = items_in(folder, name, task)
            assert len(items) == 12 * (2 if task.form == "answers" else 1)
            has_labels = part != "test" or task.test == task.dev
            assert all((item.labels is not None) == has_labels for item in items)
            for item in items:
                assert all(len(texts) == len(task.text) for texts in item.rows)
                assert item.labels is None or len(item.labels) == len(item.rows)
    if task.train:
        rows = list(read_rows([folder / task.train[0]], task))
        assert all(isinstance(row, Labelled) for row in rows)
        assert {row.label for row in rows} == set(task.labels) or task.is_numeric


def only(task: str, tmp_path: Path, *records: dict[str, Any]) -> list[Item]:
    path = tmp_path / "val.jsonl"
    lines = [json.dumps(record, ensure_ascii=False) for record in records]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return list(read_items(path, task_named(task)))


def test_copa_has_a_row_for_each_choice(tmp_path: Path) -> None:
    record = {
        "premise": "The man turned on the faucet.",
        "choice1": "The toilet filled.",
        "choice2": "Water flowed.",
        "question": "effect",
        "label": 1,
        "idx": 7,
    }
    (item,) = only("superglue/copa", tmp_path, record)
    first = "The man turned on the faucet. What happened as a result?"
    assert item == Item(
        7, ((first, "The toilet filled."), (first, "Water flowed.")), ("false", "true")
    )
    task = task_named("superglue/copa")
    assert answer_of(item, [{"true": 0.2, "false": 0.8}, {"true": 0.3, "false": 0.7}], task) == 1
    assert answer_of(item, [{"true": 0.3}, {"true": 0.3}], task) == 0
    assert score_items([item], [1], task) == {"accuracy": 100.0}
    (russian,) = only("russian-superglue/parus", tmp_path, {**record, "question": "cause"})
    assert russian.rows[0][0].endswith("Что было причиной?")


def test_the_word_of_wic_is_between_brackets(tmp_path: Path) -> None:
    record = {
        "word": "place",
        "sentence1": "Come to my place later?",
        "sentence2": "Place it.",
        "idx": 0,
        "label": False,
        "start1": 11,
        "end1": 16,
        "start2": 0,
        "end2": 5,
    }
    (item,) = only("superglue/wic", tmp_path, record)
    assert item == Item(0, (("Come to my [ place ] later?", "[ Place ] it."),), ("false",))


@pytest.mark.parametrize(
    ("text", "span", "index", "marked"),
    [
        ("Mark told Pete that He lied.", "He", 4, "Mark told Pete that [ He ] lied."),
        ("He said he (he, too) came.", "he", 3, "He said he ([ he ], too) came."),
        ("They want to use it , but it is.", "it", 3, "They want to use [ it ] , but it is."),
        ("and cursing him aloud", "Cursing him", 1, "and [ cursing him ] aloud"),
        ("he pulled the tape off", "the tape.", 2, "he pulled [ the tape ] off"),
    ],
)
def test_the_pronoun_of_wsc_is_between_brackets(
    text: str, span: str, index: int, marked: str, tmp_path: Path
) -> None:
    """Index, case and punctuation of the official files are not exact."""
    target = {"span1_text": "Mark", "span1_index": 0, "span2_text": span, "span2_index": index}
    (item,) = only("superglue/wsc", tmp_path, {"text": text, "target": target, "idx": 0})
    assert item == Item(0, ((marked, "Mark"),), None)


def test_multirc_has_a_row_for_each_answer(tmp_path: Path) -> None:
    answers = [{"text": "No", "idx": 4, "label": 0}, {"text": "Yes", "idx": 5, "label": 1}]
    question = {"question": "Is it?", "answers": answers, "idx": 2}
    passage = {"text": "It is.", "questions": [question]}
    (item,) = only("superglue/multirc", tmp_path, {"idx": 1, "passage": passage})
    rows = (("It is.", "Is it? No"), ("It is.", "Is it? Yes"))
    assert item == Item((1, 2), rows, ("0", "1"), (4, 5))
    task = task_named("superglue/multirc")
    given = answer_of(item, [{"0": 0.7, "1": 0.3}, {"0": 0.4, "1": 0.6}], task)
    assert given == ("0", "1")
    assert score_items([item], [given], task) == {"f1a": 100.0, "exact_match": 100.0}


def test_record_has_a_row_for_each_candidate_once(tmp_path: Path) -> None:
    text = "Anna met Ben.\n@highlight\nAnna smiled."
    entities = [{"start": 25, "end": 28}, {"start": 0, "end": 3}, {"start": 9, "end": 11}]
    answers = [{"start": 0, "end": 3, "text": "Anna"}, {"start": 25, "end": 28, "text": "Anna"}]
    record = {
        "passage": {"text": text, "entities": entities},
        "qas": [{"query": "@placeholder left.", "answers": answers, "idx": 9}],
        "idx": 3,
    }
    (item,) = only("superglue/record", tmp_path, record)
    passage = "Anna met Ben. Anna smiled."
    rows = ((passage, "Anna left."), (passage, "Ben left."))
    assert item == Item(9, rows, ("true", "false"), ("Anna", "Ben"), ("Anna",))
    task = task_named("superglue/record")
    assert answer_of(item, [{"true": 0.1}, {"true": 0.2}], task) == "Ben"


@by_task
def test_right_answers_have_the_highest_scores(task: SuiteTask, tmp_path: Path) -> None:
    """Probabilities of 1 for the right labels of the rows give 100, all others less."""
    items = items_in(write_suite_task(tmp_path, task, 12), task.dev[0], task)

    def outputs(item: Item, *, wrong: bool) -> list[Any]:
        if task.is_numeric:
            return [(-1 if wrong else 1) * float(label) for label in item.labels or ()]
        order = task.labels[::-1] if wrong else task.labels
        return [
            {order[task.labels.index(label)]: 1.0, task.labels[0]: 0.1} | {label: float(not wrong)}
            for label in item.labels or ()
        ]

    right = [answer_of(item, outputs(item, wrong=False), task) for item in items]
    found = score_items(items, right, task)
    assert list(found) == list(task.metrics)
    assert all(value == pytest.approx(100) for value in found.values())
    other = [answer_of(item, outputs(item, wrong=True), task) for item in items]
    assert min(score_items(items, other, task).values()) < 99


# Submissions


@by_task
def test_a_submission_has_each_prediction_in_the_official_format(
    task: SuiteTask, tmp_path: Path
) -> None:
    folder = write_suite_task(tmp_path, task, 5)
    name = task.submission_files[0]
    items = items_in(folder, task.test[0], task)
    row: Any = 2.34567 if task.is_numeric else {task.labels[-1]: 1.0}
    answers = [answer_of(item, [row] * len(item.rows), task) for item in items]
    write_submission(tmp_path / name, items, answers, task)
    lines = (tmp_path / name).read_text(encoding="utf-8").splitlines()
    if task.suite == "glue":
        label = "2.346" if task.is_numeric else task.labels[-1]
        assert lines == ["index\tprediction", *(f"{place}\t{label}" for place in range(5))]
    elif name.endswith(".csv"):
        assert lines == ["id,acceptable", *(f"{place},1" for place in range(5))]
    else:
        assert [json.loads(line) for line in lines] == submitted(task)


def submitted(task: SuiteTask) -> list[dict[str, Any]]:
    """What the made-up test set of five examples gives if every row has the last label."""
    if task.form == "answers":
        return [
            {
                "idx": place,
                "passage": {
                    "questions": [
                        {
                            "idx": 2 * place + number,
                            "answers": [{"idx": 10 * place + one, "label": 1} for one in range(3)],
                        }
                        for number in range(2)
                    ]
                },
            }
            for place in range(5)
        ]
    if task.form == "cloze":
        return [{"idx": 100 + place, "label": "Anna"} for place in range(5)]
    label: Any = {"COPA": 0, "PARus": 0, "WSC": "True", "RWSD": "True"}.get(task.title)
    label = task.labels[-1] if label is None else label
    return [{"idx": place, "label": label} for place in range(5)]


def test_the_files_have_the_names_that_the_servers_ask_for() -> None:
    names = [name for task in tasks_of("glue") for name in task.submission_files]
    assert names == [
        *("CoLA.tsv", "SST-2.tsv", "MRPC.tsv", "STS-B.tsv", "QQP.tsv", "MNLI-m.tsv"),
        *("MNLI-mm.tsv", "QNLI.tsv", "RTE.tsv", "WNLI.tsv", "AX.tsv"),
    ]
    names = [name for task in tasks_of("superglue") for name in task.submission_files]
    titles = ("BoolQ", "CB", "COPA", "MultiRC", "ReCoRD", "RTE", "WiC", "WSC", "AX-b", "AX-g")
    assert names == [f"{title}.jsonl" for title in titles]


# Mistakes

_CB = '{"premise": "a", "hypothesis": "b", "idx": 0}\n'


@pytest.mark.parametrize(
    ("key", "name", "content", "message"),
    [
        ("glue/rte", "dev.tsv", "index\tsentence\tlabel\n0\ta\t1\n", "no column 'sentence1'"),
        (
            *("glue/rte", "dev.tsv"),
            "index\tsentence1\tsentence2\tlabel\n0\ta\tb\tneutral\n",
            r"dev.tsv:2: the label 'neutral' is not one of RTE's: entailment, not_entailment",
        ),
        (
            *("glue/rte", "dev.tsv"),
            "index\tsentence1\tsentence2\tlabel\n0\ta\tb\n",
            "dev.tsv:2: columns: 3 instead of 4",
        ),
        (
            *("glue/rte", "dev.tsv"),
            "index\tsentence1\tsentence1\tlabel\n0\ta\tb\tneutral\n",
            "dev.tsv:1: two columns have the name 'sentence1'",
        ),
        (
            *("glue/rte", "dev.tsv"),
            "index\tsentence1\tsentence2\tlabel\tlabel\n0\ta\tb\tentailment\tx\n",
            "dev.tsv:1: two columns have the name 'label'",
        ),
        (
            *("glue/rte", "dev.tsv"),
            "index\tsentence1\tsentence2\tlabel\n0\ta\tb\tentailment\n\n",
            "dev.tsv:3: this line is empty",
        ),
        ("glue/cola", "dev.tsv", "gj04\t1\tA bird.\n", "no column 'sentence' of CoLA"),
        ("glue/sts-b", "dev.tsv", "sentence1\tsentence2\tscore\na\tb\thigh\n", "not a number"),
        ("glue/sts-b", "dev.tsv", "sentence1\tsentence2\tscore\na\tb\tnan\n", "'nan' .* not a n"),
        ("superglue/cb", "val.jsonl", '{"premise": "a", "idx": 0}\n', "no field 'hypothesis'"),
        ("superglue/cb", "val.jsonl", '{"premise": "a"\n', "val.jsonl:1: not a JSON object"),
        *(
            ("superglue/cb", "val.jsonl", _CB.replace("0", index), f"'idx'{message}")
            for index, message in (
                ('"\\ud800"', ": character 1 is a lone surrogate"),
                ("[0]", " must be a text or a whole number"),
                ("NaN", " must be a text or a whole number"),
            )
        ),
        ("superglue/cb", "val.jsonl", "\n", "val.jsonl:1: this line is empty"),
        ("superglue/cb", "val.jsonl", "", "the file is empty"),
        (
            *("superglue/cb", "val.jsonl"),
            '{"premise": "a", "hypothesis": "b", "idx": 0, "label": "neutral"}\n'
            '{"premise": "a", "hypothesis": "b", "idx": 1}\n',
            "val.jsonl:2: some examples have a label, others have none",
        ),
        (
            *("superglue/copa", "val.jsonl"),
            '{"premise": "a", "choice1": "b", "choice2": "c", "question": "why", "idx": 0}\n',
            "question 'why' is neither cause nor effect",
        ),
        (
            *("superglue/wic", "val.jsonl"),
            '{"sentence1": "a", "sentence2": "b", "start1": 0, "end1": 9, "start2": 0, "end2": 1,'
            ' "idx": 0}\n',
            "characters 0 to 9 are not in the text",
        ),
        (
            *("superglue/wsc", "val.jsonl"),
            '{"text": "It is.", "target": {"span1_text": "a", "span2_text": "he",'
            ' "span2_index": 0}, "idx": 0}\n',
            "'he' .* is not in the text",
        ),
        (
            *("superglue/wsc", "val.jsonl"),
            '{"text": "It is.", "target": {"span1_text": "a", "span2_text": " ",'
            ' "span2_index": 0}, "idx": 0}\n',
            r"the pronoun \(span2_text\) is empty",
        ),
        (
            *("superglue/multirc", "val.jsonl"),
            '{"passage": {"text": "a", "questions": [{"question": "b", "answers": [], "idx": 0}]},'
            ' "idx": 0}\n',
            "a question has no answers",
        ),
        (
            *("superglue/record", "val.jsonl"),
            '{"passage": {"text": "Ab", "entities": [{"start": 0, "end": 5}]}, "qas": [], '
            '"idx": 0}\n',
            "an entity at 0 to 5 is not in the passage",
        ),
        (
            *("superglue/record", "val.jsonl"),
            '{"passage": {"text": "Ab", "entities": []}, "qas": [], "idx": 0}\n',
            "val.jsonl:1: the passage has no entities",
        ),
        (
            *("superglue/multirc", "val.jsonl"),
            '{"passage": {"text": "a", "questions": [{"question": "b"}]}, "idx": 0}\n',
            "no field 'answers'",
        ),
    ],
)  # fmt: skip
def test_a_wrong_file_is_one_clear_line(
    key: str, name: str, content: str, message: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(content, encoding="utf-8")
    with pytest.raises(UserError, match=message) as caught:
        list(read_items(tmp_path / name, task_named(key)))
    assert "\n" not in str(caught.value)


def test_incomplete_rows_of_qqp_are_counted_in_training_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task = task_named("glue/qqp")
    folder = write_suite_task(tmp_path, task, 4)
    for name in ("train.tsv", "dev.tsv"):
        with (folder / name).open("a", encoding="utf-8") as file:
            file.write("9\tx\tx\tonly one question\n9\tx\tx\tA?\t\t1\n")
    rows = list(read_rows([folder / "train.tsv"], task))
    said = " ".join(capsys.readouterr().err.split())
    assert len(rows) == 4
    assert "1 row with 4 instead of 6 columns" in said
    assert "1 row with an empty text" in said
    with pytest.raises(UserError, match="columns: 4 instead of 6"):
        items_in(folder, "dev.tsv", task)


def test_a_test_set_cannot_be_trained_on(tmp_path: Path) -> None:
    task = task_named("glue/rte")
    folder = write_suite_task(tmp_path, task, 4)
    with pytest.raises(UserError, match=r"no labels \('label'\): this is a test set"):
        list(read_rows([folder / "test.tsv"], task))


def test_an_unknown_task_is_named_with_the_nearest() -> None:
    with pytest.raises(UserError, match="'glue/cola'"):
        task_named("glue/colla")
    with pytest.raises(UserError, match="there are glue, superglue, russian-superglue"):
        tasks_of("glu")


# Recipes


def data_of(**data: Any) -> Any:
    task = data.pop("task", "classification")
    return check_recipe({"task": task, "data": data}, "the recipe").data_tables()["data"]


def test_the_task_gives_files_and_columns() -> None:
    data: Any = data_of(benchmark="glue/mnli")
    assert data.train == ["train.tsv"]
    assert data.test == ["dev_matched.tsv", "dev_mismatched.tsv"]
    assert (data.text, data.label) == (["sentence1", "sentence2"], "gold_label")
    assert data_of(benchmark="superglue/copa", train="own.jsonl").train == ["own.jsonl"]
    assert data_of(task="regression", benchmark="glue/sts-b").label == "score"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"benchmark": "glue/colla"}, "did you mean 'glue/cola'"),
        ({"benchmark": "superglue/ax-b"}, "no training data: train on superglue/rte"),
        ({"benchmark": "glue/sts-b"}, 'needs task = "regression"'),
        ({"benchmark": "glue/cola", "task": "multi-label"}, 'needs task = "classification"'),
        ({"benchmark": "glue/cola", "task": "regression"}, 'needs task = "classification"'),
        ({"benchmark": "glue/cola", "format": "tsv"}, "leave out format"),
        ({"benchmark": "glue/cola", "unlabelled": "skip"}, "leave out unlabelled"),
        ({"benchmark": "glue/cola", "text": ["body"]}, "leave out text"),
    ],
)
def test_a_benchmark_that_does_not_fit_is_refused(data: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        data_of(**data)


def test_another_encoding_is_refused() -> None:
    data = data_of(benchmark="glue/cola", encoding="latin-1")
    with pytest.raises(UserError, match="the files of glue/cola are UTF-8"):
        data.read(["train.tsv"])


# Official data


@real_data
def test_official_files_are_read_whole() -> None:
    """The numbers of examples of the papers, for what is at hand."""
    counts = {
        "glue/cola": [8551, 1043, 1063],
        "glue/sst-2": [67349, 872, 1821],
        "glue/mrpc": [4076, None, 1725],
        "glue/sts-b": [5749, 1500, None],
        "glue/rte": [2490, 277, 3000],
        "glue/wnli": [635, 71, 146],
        "superglue/boolq": [None, 3270, None],
        "superglue/cb": [250, 56, 250],
        "superglue/copa": [400, 100, 500],
        "superglue/wic": [5428, 638, 1400],
        "superglue/wsc": [554, 104, 146],
        "superglue/ax-g": [None, 356, 356],
        "russian-superglue/terra": [2616, 307, 3198],
    }
    for key, expected in counts.items():
        task = task_named(key)
        folder = DATA / task.suite / task.title
        for part, count in zip(("train", "dev", "test"), expected, strict=True):
            names = getattr(task, part)
            path = find_file(folder, names[0], task) if names else None
            found = None if path is None else sum(1 for _ in read_items(path, task))
            assert found == count, (key, part)


@real_data
def test_multirc_and_the_stubs_of_record_are_read() -> None:
    task = task_named("superglue/multirc")
    path = find_file(DATA / "superglue/MultiRC", "val.jsonl", task)
    assert path is not None
    items = list(read_items(path, task))
    assert len({item.index[0] for item in items}) == 83
    assert (len(items), sum(len(item.rows) for item in items)) == (953, 4848)
    task = task_named("superglue/record")
    items = items_in(DATA / "superglue/ReCoRD", "val-5.jsonl", task)
    assert all(set(item.gold) <= set(item.names) for item in items)


@real_data
def test_rows_are_those_that_the_recipes_read_before_they_named_the_benchmark() -> None:
    glue = DATA / "glue"
    pairs = ("sentence1", "sentence2")
    for key, file, text, label in (
        ("glue/cola", "CoLA/train.tsv.xz", ("4",), "2"),
        ("glue/cola", "CoLA/dev.tsv", ("4",), "2"),
        ("glue/rte", "RTE/train.tsv.xz", pairs, "label"),
        ("glue/mrpc", "MRPC/msr_paraphrase_test.txt.xz", ("#1 String", "#2 String"), "Quality"),
        ("glue/sts-b", "STS-B/dev.tsv.xz", pairs, "score"),
    ):
        before = list(read_labelled(glue / file, text=text, label=label, format="tsv"))
        assert list(read_rows([glue / file], task_named(key))) == before


def test_made_up_files_do_not_depend_on_the_order(tmp_path: Path) -> None:
    task = task_named("glue/rte")
    for name in ("one.tsv", "other.tsv"):
        write_file(tmp_path / name, task, 3, random.Random(1), labelled=True)
    assert (tmp_path / "one.tsv").read_bytes() == (tmp_path / "other.tsv").read_bytes()
