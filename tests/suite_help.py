"""Small files of ours in the official format of every task of GLUE and both SuperGLUEs.

They have the official names, columns and fields; their texts are made up. No official data are in
this repository.
"""

import json
import random
from pathlib import Path
from typing import Any

from heedful.data.suites.tasks import SuiteTask

_INFO = ["index", "promptID", "pairID", "genre", "sentence1_binary_parse"]
_PARSES = [*_INFO, "sentence2_binary_parse", "sentence1_parse", "sentence2_parse"]
_VOTES = ["label1", "label2", "label3", "label4", "label5"]
_STSB = ["index", "genre", "filename", "year", "old_index", "source1", "source2"]
COLUMNS = {
    "SST-2": (["sentence", "label"], ["index", "sentence"]),
    "MRPC": (
        ["Quality", "#1 ID", "#2 ID", "#1 String", "#2 String"],
        ["index", "#1 ID", "#2 ID", "#1 String", "#2 String"],
    ),
    "STS-B": ([*_STSB, "sentence1", "sentence2", "score"], [*_STSB, "sentence1", "sentence2"]),
    "QQP": (
        ["id", "qid1", "qid2", "question1", "question2", "is_duplicate"],
        ["id", "question1", "question2"],
    ),
    "MNLI": (
        [*_PARSES, "sentence1", "sentence2", *_VOTES, "gold_label"],
        [*_PARSES, "sentence1", "sentence2"],
    ),
    "QNLI": (["index", "question", "sentence", "label"], ["index", "question", "sentence"]),
    "RTE": (["index", "sentence1", "sentence2", "label"], ["index", "sentence1", "sentence2"]),
    "WNLI": (["index", "sentence1", "sentence2", "label"], ["index", "sentence1", "sentence2"]),
    "AX": (
        ["Lexical Semantics", "Logic", "Domain", "Premise", "Hypothesis", "Label"],
        ["index", "sentence1", "sentence2"],
    ),
    "CoLA": ([], ["index", "sentence"]),
}
"""The official columns of GLUE: of files with labels, and of test sets."""
_NOUNS = ("dog", "cat", "bird", "fish", "horse", "mouse")


def write_suite_task(folder: Path, task: SuiteTask, count: int = 12, *, seed: int = 1) -> Path:
    """Write all official files of a task to its folder, which is returned."""
    own = folder / task.title
    own.mkdir(parents=True, exist_ok=True)
    rng = random.Random(seed)
    for part in ("train", "dev", "test"):
        for name in getattr(task, part):
            if (own / name).exists():
                continue
            labelled = part != "test" or task.test == task.dev
            write_file(own / name, task, count, rng, labelled=labelled)
    return own


def write_file(
    path: Path, task: SuiteTask, count: int, rng: random.Random, *, labelled: bool
) -> None:
    if task.suite == "glue":
        lines = _table(task, count, rng, labelled)
    elif path.suffix == ".csv":
        lines = ["id,sentence" + (",acceptable,error_type,detailed_source" * labelled)]
        for place in range(count):
            ending = f",{place % 2},0,Made2026" if labelled else ""
            lines.append(f'{place},"{_sentence(rng)}, да."{ending}')
    else:
        lines = [
            json.dumps(one, ensure_ascii=False) for one in _objects(task, count, rng, labelled)
        ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _sentence(rng: random.Random) -> str:
    return f"the {rng.choice(_NOUNS)} sees a {rng.choice(_NOUNS)} and the {rng.choice(_NOUNS)}"


def _label(task: SuiteTask, place: int) -> str:
    if task.is_numeric:
        return f"{place % 6:.3f}"
    if "gender_parity" in task.metrics:  # neighbours are a pair
        place //= 2
    return task.labels[place % len(task.labels)]


def _table(task: SuiteTask, count: int, rng: random.Random, labelled: bool) -> list[str]:
    header = COLUMNS[task.title][not labelled]
    names = header or list(task.headless)
    lines = ["\t".join(header)] if header else []
    for place in range(count):
        row = dict.fromkeys(names, "x")
        row |= {name: str(place) for name in ("index", "id") if name in names}
        for own in names:
            if task.renamed.get(own, own) in task.text:
                row[own] = _sentence(rng)
            if labelled and task.renamed.get(own, own) == task.label:
                row[own] = _label(task, place)
        lines.append("\t".join(row[name] for name in names))
    return lines


def _objects(
    task: SuiteTask, count: int, rng: random.Random, labelled: bool
) -> list[dict[str, Any]]:
    made = []
    for place in range(count):
        one = _FORMS[task.form](task, place, rng, labelled)
        made.append({**one, "idx": place})
    return made


def _labelled(task: SuiteTask, place: int, labelled: bool) -> dict[str, Any]:
    if not labelled:
        return {}
    label: Any = _label(task, place)
    return {task.label: {"true": True, "false": False}.get(label, label)}


def _plain(task: SuiteTask, place: int, rng: random.Random, labelled: bool) -> dict[str, Any]:
    return {name: _sentence(rng) for name in task.text} | _labelled(task, place, labelled)


def _choice(task: SuiteTask, place: int, rng: random.Random, labelled: bool) -> dict[str, Any]:
    names = ("premise", "choice1", "choice2")
    label = {"label": place % 2} if labelled else {}
    return {name: _sentence(rng) for name in names} | {"question": "cause", **label}


def _marked(task: SuiteTask, place: int, rng: random.Random, labelled: bool) -> dict[str, Any]:
    one: dict[str, Any] = {"word": "see", "version": 1.1}
    for number in "12":
        text = _sentence(rng)
        start = text.index("sees")
        one |= {f"sentence{number}": text, f"start{number}": start, f"end{number}": start + 4}
    return one | _labelled(task, place, labelled)


def _pronoun(task: SuiteTask, place: int, rng: random.Random, labelled: bool) -> dict[str, Any]:
    noun = rng.choice(_NOUNS)
    target = {"span1_text": f"The {noun}", "span1_index": 0, "span2_text": "it", "span2_index": 4}
    one = {"text": f"The {noun} sleeps because it, says Tom, is tired.", "target": target}
    return one | _labelled(task, place, labelled)


def _answers(task: SuiteTask, place: int, rng: random.Random, labelled: bool) -> dict[str, Any]:
    questions = []
    for number in range(2):
        answers = []
        for idx in range(3):
            label = {"label": (place + idx) % 2} if labelled else {}
            answers.append({"text": _sentence(rng), "idx": 10 * place + idx, **label})
        questions.append({"question": "Who?", "answers": answers, "idx": 2 * place + number})
    return {"version": 1.1, "passage": {"text": _sentence(rng), "questions": questions}}


def _cloze(task: SuiteTask, place: int, rng: random.Random, labelled: bool) -> dict[str, Any]:
    text = f"Anna met Ben in Rome.\n@highlight\n{_sentence(rng)}"
    entities = [{"start": 0, "end": 3}, {"start": 9, "end": 11}, {"start": 16, "end": 19}]
    name = ("Anna", "Ben", "Rome")[place % 3]
    answer = {"start": 0, "end": 3, "text": name}
    query: dict[str, Any] = {"query": "People saw @placeholder.", "idx": 100 + place}
    qas = [{**query, "answers": [answer]} if labelled else query]
    return {"source": "made", "passage": {"text": text, "entities": entities}, "qas": qas}


_FORMS = {
    "plain": _plain,
    "choice": _choice,
    "marked": _marked,
    "pronoun": _pronoun,
    "answers": _answers,
    "cloze": _cloze,
}
