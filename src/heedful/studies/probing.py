"""What can be read from the states of each layer by a linear map?"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from heedful.basics.errors import UserError
from heedful.data.readers.trees import Tree
from heedful.evaluation.probing import PENALTIES, ControlTask, MostFrequent, best_probe
from heedful.inference.word_reader import WordReader
from heedful.studies.drawing import draw_lines, panels
from heedful.studies.study import Cell, Picture, Study, StudyOptions, StudyResult, Table
from heedful.studies.trained_runs import (
    TREEBANK,
    WIKITEXT,
    Recipe,
    reader_of,
    trained_runs,
    treebank,
)

RECIPES = (
    Recipe("wikitext2-bert-tiny", WIKITEXT),
    Recipe("wikitext2-gpt-tiny", WIKITEXT),
    Recipe("ewt-bert-tiny", TREEBANK),
)
_WORDS = 50_000
_DEEPEST = 7

LABELS: dict[str, Callable[[Tree], Sequence[str]]] = {
    "part of speech": lambda tree: tree.tags,
    "relation": lambda tree: [one.partition(":")[0] for one in tree.relations],
    "depth": lambda tree: [str(min(depth, _DEEPEST)) for depth in tree.depths()],
}
"""What is probed → the labels of a sentence's words."""

METHOD = """A word's state is the mean over its tokens, before the first layer (embeddings) and
after each layer; the model is not trained further. For each layer and each kind of label (part of
speech: UPOS; relation to the head, without subtypes; depth in the tree, 7 for 7 and more) a
multinomial logistic regression of the standardized states is fitted by L-BFGS on the training
sentences of the treebank (evenly spaced ones, of about 50,000 words), its L2 penalty is chosen from
four on the development sentences, and its accuracy is that on the test sentences. The control task
gives each word type a random label with the frequencies of the real ones; the selectivity is the
difference of the accuracies. "Most frequent label" is the accuracy of each word type's most
frequent training label. Sentences longer than the model's maximum are left out and counted.
Tenney et al. 2019, "BERT Rediscovers the Classical NLP Pipeline"; Hewitt and Liang 2019, "Designing
and Interpreting Probes with Control Tasks"."""


class Read(NamedTuple):
    """The sentences of one part of the treebank as a model reads them."""

    states: Tensor
    """``[S, N, D]``"""
    words: list[str]
    """``[N]``"""
    trees: list[Tree]


def run(options: StudyOptions) -> StudyResult:
    """Probe all layers of each run."""
    parts = [treebank(options, part) for part in ("train", "dev", "test")]
    parts[0] = evenly_spaced(parts[0], _WORDS)
    found: list[str] = []
    tables: list[Table] = []
    pictures: list[Picture] = []
    for number, trained in enumerate(
        trained_runs(options, RECIPES, reader_of, reads_data=True), start=1
    ):
        options.echo(f"{trained.label}: reads the treebank")
        reader = reader_of(trained)
        read = [_read(reader, trees, str(trained.run.path)) for trees in parts]
        rows: list[tuple[Cell, ...]] = []
        for kind in LABELS:
            options.echo(f"{trained.label}: probes {kind}")
            rows += _rows(kind, read, options.seeds[0], reader.device, quick=options.quick)
        found += [_summary(trained.label, kind, rows) for kind in LABELS]
        title = f"{trained.label}: accuracy of linear probes"
        tables.append(Table(f"run-{number}", title, COLUMNS, tuple(rows)))
        pictures.append(_picture(trained.label, number, rows))
    return StudyResult(tuple(found), tuple(tables), tuple(pictures))


COLUMNS = ("labels", "layer", "accuracy", "control task", "selectivity", "most frequent label")


def evenly_spaced(trees: Sequence[Tree], words: int) -> list[Tree]:
    """Every n-th tree, with the smallest n for which they have at most about ``words`` words."""
    total = sum(len(tree.words) for tree in trees)
    return list(trees[:: max(1, round(total / words))])


def _read(reader: WordReader, trees: Sequence[Tree], where: str) -> Read:
    rows = reader.rows([tree.words for tree in trees], "the study")
    if not rows:
        raise UserError(f"{where}: no sentence of the treebank fits into the model")
    states = dict(reader.states(rows))
    kept = [trees[index] for index in rows]
    words = [word for tree in kept for word in tree.words]
    return Read(torch.cat([states[index] for index in rows], dim=1), words, kept)


def _rows(
    kind: str, read: Sequence[Read], seed: int, device: torch.device, *, quick: bool
) -> list[tuple[Cell, ...]]:
    """The rows of one kind of label."""
    names = [[name for tree in part.trees for name in LABELS[kind](tree)] for part in read]
    every = dict.fromkeys(name for part in names for name in part)
    known = {name: number for number, name in enumerate(every)}
    labels = [[known[name] for name in part] for part in names]
    control = ControlTask(labels[0], seed)
    others = [control.of(part.words) for part in read]
    frequent = MostFrequent(read[0].words, labels[0]).accuracy(read[2].words, labels[2])
    penalties = PENALTIES[-1:] if quick else PENALTIES
    rows: list[tuple[Cell, ...]] = []
    for layer in range(len(read[0].states)):
        states = [part.states[layer].to(device) for part in read]
        real, chance = (_accuracy(states, own, len(known), penalties) for own in (labels, others))
        rows.append((kind, layer, real, chance, real - chance, frequent))
    return rows


def _accuracy(
    states: Sequence[Tensor],
    labels: Sequence[list[int]],
    classes: int,
    penalties: Sequence[float],
) -> float:
    """The accuracy in the last part of a probe fitted in the first, chosen in the second."""
    train, validation, test = (
        (own, torch.tensor(numbers, device=own.device))
        for own, numbers in zip(states, labels, strict=True)
    )
    return best_probe(train, validation, classes, penalties).accuracy(*test)


def _summary(label: str, kind: str, rows: Sequence[tuple[Any, ...]]) -> str:
    own = [row for row in rows if row[0] == kind]
    best = max(own, key=lambda row: row[2])
    selective = max(own, key=lambda row: row[4])
    where = "the embeddings" if not best[1] else f"layer {best[1]}"
    return (
        f"{label}, {kind}: the most accurate probe is that of {where}, {best[2]:.3f} (embeddings "
        f"{own[0][2]:.3f}, most frequent label of each word {best[5]:.3f}); the largest "
        f"selectivity is {selective[4]:.3f} in layer {selective[1]}."
    )


def _picture(label: str, number: int, rows: Sequence[tuple[Any, ...]]) -> Picture:
    figure, axes = panels(len(LABELS), width=3.0)
    for one, kind in zip(axes, LABELS, strict=True):
        own = [row for row in rows if row[0] == kind]
        layers = [row[1] for row in own]
        lines = {
            name: (layers, [row[COLUMNS.index(name)] for row in own])
            for name in ("accuracy", "control task", "most frequent label")
        }
        draw_lines(one, lines)
        one.set_title(kind, fontsize=10)
        one.set_xlabel("layer (0: embeddings)")
        one.set_xticks(layers)
        one.set_ylim(0, 1)
    caption = f"{label}: the accuracy of linear probes by layer, beside the control task."
    return Picture(f"run-{number}", caption, figure)


STUDY = Study(
    "probing",
    "Probes of layers",
    "Which layer's states show the part of speech, the relation and the depth of a word?",
    METHOD,
    run,
    {
        "data": "a folder with ud-english-ewt (and wikitext-2, if no run is given), or one UD "
        "treebank and --run"
    },
)
