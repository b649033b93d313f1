"""The tasks of GLUE, SuperGLUE and Russian SuperGLUE as data.

GLUE: Wang et al. 2018, https://arxiv.org/abs/1804.07461. SuperGLUE: Wang et al. 2019,
https://arxiv.org/abs/1905.00537. Russian SuperGLUE: Shavrina et al. 2020,
https://arxiv.org/abs/2010.15925.
"""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from heedful.basics.errors import UserError

Form = Literal["plain", "choice", "marked", "pronoun", "answers", "cloze"]
"""How an example becomes texts (:mod:`heedful.data.suites.forms`)."""
TRUE, FALSE = "true", "false"
_ENTAILED = ("entailment", "not_entailment")
_THREE = ("entailment", "neutral", "contradiction")
_BOOLEAN = (FALSE, TRUE)


@dataclass(frozen=True)
class SuiteTask:
    """A task of a benchmark.

    Attributes:
        suite: ``glue``, ``superglue`` or ``russian-superglue``.
        title: its official name: that of its folder and of its submission.
        text: the names of the texts that a model reads, one or two.
        labels: the labels of a row; empty for numbers.
        metrics: names of :data:`heedful.evaluation.suites.METRICS`; the score is their mean.
        form: how an example becomes rows of texts.
        columns: the columns or fields that the form reads; those of ``text`` by default.
        label: the column or field of the label.
        train: the official files of the training set.
        dev: the files of the development set.
        test: the files of the test set; its labels are secret.
        submissions: the file of predictions for each test file.
        headless: the columns of files without a line of column names.
        renamed: column of some official files → its usual name.
        instead: usual file name → name in another official distribution.
        written: label → how a submission has it, where they differ.
        counted: whether the task counts towards the average of the benchmark.
        trained_on: the task whose model is tested, for a task without training data.
        incomplete: whether training rows with too few columns are left out, and counted.
        language: of the questions that COPA's form asks.
    """

    suite: str
    title: str
    text: tuple[str, ...]
    labels: tuple[str, ...]
    metrics: tuple[str, ...] = ("accuracy",)
    form: Form = "plain"
    columns: tuple[str, ...] = ()
    label: str = "label"
    train: tuple[str, ...] = ("train.jsonl",)
    dev: tuple[str, ...] = ("val.jsonl",)
    test: tuple[str, ...] = ("test.jsonl",)
    submissions: tuple[str, ...] = ()
    headless: tuple[str, ...] = ()
    renamed: Mapping[str, str] = field(default_factory=dict)
    instead: Mapping[str, str] = field(default_factory=dict)
    written: Mapping[str, str] = field(default_factory=dict)
    counted: bool = True
    trained_on: str | None = None
    incomplete: bool = False
    language: str = "en"

    @property
    def key(self) -> str:
        """The value of ``data.benchmark``: "glue/rte"."""
        return f"{self.suite}/{self.title.lower()}"

    @property
    def read(self) -> tuple[str, ...]:
        """The columns or fields of an example that the form reads."""
        return self.columns or self.text

    @property
    def is_numeric(self) -> bool:
        """Whether it asks for a number instead of a label."""
        return not self.labels

    @property
    def submission_files(self) -> tuple[str, ...]:
        """The file of predictions for each test file."""
        ending = "tsv" if self.suite == "glue" else "jsonl"
        return self.submissions or (f"{self.title}.{ending}",)

    def written_label(self, label: str) -> str:
        """A label as a submission has it."""
        return self.written.get(label, label)


def _glue(title: str, text: tuple[str, ...], labels: tuple[str, ...], **more: Any) -> SuiteTask:
    own: dict[str, Any] = {
        "train": ("train.tsv",),
        "dev": ("dev.tsv",),
        "test": ("test.tsv",),
        **more,
    }
    return SuiteTask("glue", title, text, labels, **own)


def _russian(title: str, text: tuple[str, ...], labels: tuple[str, ...], **more: Any) -> SuiteTask:
    return SuiteTask("russian-superglue", title, text, labels, language="ru", **more)


_SENTENCES = ("sentence1", "sentence2")
_PREMISE = ("premise", "hypothesis")
_SPOKEN = {FALSE: "False", TRUE: "True"}
_CHOICE: dict[str, Any] = {
    "form": "choice",
    "columns": ("premise", "question", "choice1", "choice2"),
}
_CB: dict[str, Any] = {"metrics": ("macro_f1", "accuracy")}
_MULTIRC: dict[str, Any] = {
    "form": "answers",
    "columns": ("passage",),
    "metrics": ("f1a", "exact_match"),
}
_RECORD: dict[str, Any] = {
    "form": "cloze",
    "columns": ("passage", "qas"),
    "metrics": ("token_f1", "exact_match"),
}
_GLUE = (
    _glue(
        "CoLA",
        ("sentence",),
        ("0", "1"),
        metrics=("matthews",),
        headless=("source", "label", "mark", "sentence"),
    ),
    _glue("SST-2", ("sentence",), ("0", "1")),
    _glue(
        "MRPC",
        ("#1 String", "#2 String"),
        ("0", "1"),
        label="Quality",
        metrics=("f1", "accuracy"),
        instead={"train.tsv": "msr_paraphrase_train.txt", "test.tsv": "msr_paraphrase_test.txt"},
    ),
    _glue("STS-B", _SENTENCES, (), label="score", metrics=("pearson", "spearman")),
    _glue(
        "QQP",
        ("question1", "question2"),
        ("0", "1"),
        label="is_duplicate",
        metrics=("f1", "accuracy"),
        incomplete=True,
    ),
    _glue(
        "MNLI",
        _SENTENCES,
        _THREE,
        label="gold_label",
        dev=("dev_matched.tsv", "dev_mismatched.tsv"),
        test=("test_matched.tsv", "test_mismatched.tsv"),
        submissions=("MNLI-m.tsv", "MNLI-mm.tsv"),
    ),
    _glue("QNLI", ("question", "sentence"), _ENTAILED),
    _glue("RTE", _SENTENCES, _ENTAILED),
    _glue("WNLI", _SENTENCES, ("0", "1")),
    _glue(
        "AX",
        _SENTENCES,
        _THREE,
        metrics=("matthews",),
        train=(),
        dev=("diagnostic-full.tsv",),
        test=("diagnostic.tsv",),
        renamed={"Premise": "sentence1", "Hypothesis": "sentence2", "Label": "label"},
        counted=False,
        trained_on="glue/mnli",
    ),
)
_SUPERGLUE = (
    SuiteTask("superglue", "BoolQ", ("question", "passage"), _BOOLEAN),
    SuiteTask("superglue", "CB", _PREMISE, _THREE, **_CB),
    SuiteTask("superglue", "COPA", ("premise", "choice"), _BOOLEAN, **_CHOICE),
    SuiteTask("superglue", "MultiRC", ("passage", "answer"), ("0", "1"), **_MULTIRC),
    SuiteTask("superglue", "ReCoRD", ("passage", "query"), _BOOLEAN, **_RECORD),
    SuiteTask("superglue", "RTE", _PREMISE, _ENTAILED),
    SuiteTask(
        "superglue",
        "WiC",
        _SENTENCES,
        _BOOLEAN,
        form="marked",
        columns=(*_SENTENCES, "start1", "end1", "start2", "end2"),
    ),
    SuiteTask(
        "superglue",
        "WSC",
        ("text", "candidate"),
        _BOOLEAN,
        form="pronoun",
        columns=("text", "target"),
        written=_SPOKEN,
    ),
    SuiteTask(
        "superglue",
        "AX-b",
        _SENTENCES,
        _ENTAILED,
        metrics=("matthews",),
        train=(),
        dev=("AX-b.jsonl",),
        test=("AX-b.jsonl",),
        counted=False,
        trained_on="superglue/rte",
    ),
    SuiteTask(
        "superglue",
        "AX-g",
        _PREMISE,
        _ENTAILED,
        metrics=("gender_parity", "accuracy"),
        train=(),
        dev=("AX-g.jsonl",),
        test=("AX-g.jsonl",),
        counted=False,
        trained_on="superglue/rte",
    ),
)
_RUSSIAN = (
    _russian(
        "LiDiRus",
        _SENTENCES,
        _ENTAILED,
        metrics=("matthews",),
        train=(),
        dev=("LiDiRus.jsonl",),
        test=("LiDiRus.jsonl",),
        trained_on="russian-superglue/terra",
    ),
    _russian("RCB", _PREMISE, _THREE, **_CB),
    _russian("PARus", ("premise", "choice"), _BOOLEAN, **_CHOICE),
    _russian("MuSeRC", ("passage", "answer"), ("0", "1"), **_MULTIRC),
    _russian("TERRa", _PREMISE, _ENTAILED),
    _russian(
        "RUSSE",
        _SENTENCES,
        _BOOLEAN,
        form="marked",
        columns=(*_SENTENCES, "start1", "end1", "start2", "end2"),
    ),
    _russian(
        "RWSD",
        ("text", "candidate"),
        _BOOLEAN,
        form="pronoun",
        columns=("text", "target"),
        written=_SPOKEN,
    ),
    _russian("DaNetQA", ("question", "passage"), _BOOLEAN),
    _russian("RuCoS", ("passage", "query"), _BOOLEAN, **_RECORD),
    _russian(
        "RuCoLA",
        ("sentence",),
        ("0", "1"),
        label="acceptable",
        metrics=("matthews", "accuracy"),
        train=("in_domain_train.csv",),
        dev=("in_domain_dev.csv", "out_of_domain_dev.csv"),
        test=("test.csv",),
        submissions=("RuCoLA.csv",),
        counted=False,
    ),
)
TASKS: dict[str, SuiteTask] = {one.key: one for one in (*_GLUE, *_SUPERGLUE, *_RUSSIAN)}
"""All tasks by key, in the order of the leaderboards."""
SUITES = tuple(dict.fromkeys(task.suite for task in TASKS.values()))


def task_named(key: str) -> SuiteTask:
    """The task with this key.

    Raises:
        UserError: there is none; the message suggests the nearest one.

    Example:
        >>> task_named("superglue/cb").metrics
        ('macro_f1', 'accuracy')
    """
    if key in TASKS:
        return TASKS[key]
    near = difflib.get_close_matches(key.lower(), list(TASKS), n=1, cutoff=0.5)
    hint = f"did you mean '{near[0]}'?" if near else f"there are {', '.join(TASKS)}"
    raise UserError(f"there is no benchmark task '{key}'; {hint}")


def tasks_of(suite: str) -> list[SuiteTask]:
    """The tasks of a benchmark.

    Raises:
        UserError: there is no such benchmark.
    """
    found = [task for task in TASKS.values() if task.suite == suite]
    if not found:
        raise UserError(f"there is no benchmark '{suite}'; there are {', '.join(SUITES)}")
    return found
