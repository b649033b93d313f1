"""Which head follows which relation of syntax?"""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from heedful.basics.errors import UserError
from heedful.data.readers.trees import Tree
from heedful.evaluation.syntax_heads import (
    ALL,
    DIRECTIONS,
    ArcCounts,
    RelationScore,
    count_arcs,
    relation_scores,
    strongest_words,
)
from heedful.inference.word_reader import WordReader, WordRow, word_weights
from heedful.studies.study import Picture, Study, StudyOptions, StudyResult, Table
from heedful.studies.trained_runs import (
    TREEBANK,
    WIKITEXT,
    Recipe,
    reader_of,
    trained_runs,
    treebank,
)
from heedful.viewing.heatmap import head_figure

RECIPES = (
    Recipe("ewt-bert-tiny", TREEBANK),
    Recipe("wikitext2-bert-tiny", WIKITEXT),
    Recipe("wikitext2-gpt-tiny", WIKITEXT),
)
_LEAST = 100

METHOD = """The development and test sentences of the treebank are read by each model. Weights
between words are those between tokens: to a word the sum, from a word the mean over its tokens.
For each word, a head predicts the other word with the largest weight; BEGIN and END do not count.
An arc between a word and its head in the tree is predicted "to the head" if the word's prediction
is its head, and "to the dependent" if the head's prediction is the word. For each relation and
direction, the best head and, as a baseline, the best fixed offset (−1 is the previous word) are
chosen on the development sentences and scored on the test sentences. Roots have no arc; relations
with fewer than 100 arcs in either set are left out. A language model attends to earlier words only,
so its arcs are those whose predicted word is the earlier one. Clark et al. 2019, "What Does BERT
Look At?", section 4."""


def run(options: StudyOptions) -> StudyResult:
    """Score all heads of each run."""
    chosen_on, scored_on = treebank(options, "dev"), treebank(options, "test")
    least = 1 if options.quick else _LEAST
    found: list[str] = []
    tables: list[Table] = []
    pictures: list[Picture] = []
    for number, trained in enumerate(
        trained_runs(options, RECIPES, reader_of, reads_data=True), start=1
    ):
        options.echo(f"{trained.label}: reads the treebank")
        reader = reader_of(trained)
        heads = reader.heads()
        counts = [_count(reader, trees, len(heads)) for trees in (chosen_on, scored_on)]
        scores = relation_scores(counts[0], counts[1], least)
        if not scores:
            raise UserError(
                f"{trained.run.path}: no relation has {least:,} arcs in the sentences that fit "
                "into the model; give a run with a larger model.max_length, or more trees"
            )
        found.append(_summary(trained.label, scores, heads))
        for direction in DIRECTIONS:
            own = [one for one in scores if one.direction == direction]
            tables.append(_table(trained.label, number, direction, own, heads))
        pictures.append(_picture(trained.label, number, counts[1], scores, heads))
    return StudyResult(tuple(found), tuple(tables), tuple(pictures))


def _count(reader: WordReader, trees: Sequence[Tree], heads: int) -> ArcCounts:
    rows = reader.rows([tree.words for tree in trees], "the study")
    return count_arcs(trees, _strongest(reader, rows), heads, causal=reader.causal)


def _strongest(reader: WordReader, rows: dict[int, WordRow]) -> Iterator[tuple[int, Tensor]]:
    for index, weights in reader.weights(rows):
        between = word_weights(weights, rows[index].words)
        yield index, strongest_words(between, causal=reader.causal)


def _summary(label: str, scores: Sequence[RelationScore], heads: Sequence[str]) -> str:
    single = [one for one in scores if one.relation != ALL]
    above = [one for one in single if one.accuracy > one.baseline]
    parts = [
        f"{label}: in {len(above)} of {len(single)} pairs of a relation and a direction, the "
        "chosen head is right more often than the best fixed offset."
    ]
    if single:
        best = max(single, key=lambda one: one.accuracy - one.baseline)
        parts.append(
            f"The largest difference is that of {best.relation} {best.direction}: head "
            f"{heads[best.head]} {best.accuracy:.3f}, offset {best.offset:+d} {best.baseline:.3f} "
            f"({best.arcs:,} arcs)."
        )
    for one in scores:
        if one.relation == ALL:
            parts.append(
                f"Of all arcs but punctuation {one.direction}, head {heads[one.head]} alone "
                f"predicts {one.accuracy:.3f}, offset {one.offset:+d} {one.baseline:.3f}."
            )
    return " ".join(parts)


def _table(
    label: str,
    number: int,
    direction: str,
    scores: Sequence[RelationScore],
    heads: Sequence[str],
) -> Table:
    rows = tuple(
        (
            one.relation,
            one.arcs,
            heads[one.head],
            one.accuracy,
            f"{one.offset:+d}",
            one.baseline,
            one.accuracy - one.baseline,
        )
        for one in scores
    )
    columns = ("relation", "arcs", "head", "accuracy", "offset", "its accuracy", "difference")
    name = f"run-{number}-{direction.replace(' ', '-')}"
    return Table(name, f"{label}: arcs {direction}", columns, rows)


def _picture(
    label: str,
    number: int,
    counts: ArcCounts,
    scores: Sequence[RelationScore],
    heads: Sequence[str],
) -> Picture:
    relations = list(dict.fromkeys(one.relation for one in scores))
    shares = [
        torch.stack([counts.accuracy(direction, one) for one in relations])
        for direction in DIRECTIONS
    ]
    scored = {(one.direction, one.relation) for one in scores}
    left_out = np.array(
        [[(direction, one) not in scored for one in relations] for direction in DIRECTIONS]
    )
    stacked = torch.stack(shares).nan_to_num(0.0)
    blank = np.broadcast_to(left_out[:, :, None], stacked.shape)
    figure = head_figure(stacked, relations, heads, label, DIRECTIONS, blank)
    caption = (
        f"{label}: the share of the test sentences' arcs of a relation (rows) that each head "
        "(columns, layer.head) predicts; grey: too few arcs."
    )
    return Picture(f"run-{number}", caption, figure)


STUDY = Study(
    "syntax-heads",
    "Heads that follow syntax",
    "Which heads attend along which dependency relations, better than a fixed offset?",
    METHOD,
    run,
    {
        "data": "a folder with ud-english-ewt (and wikitext-2, if no run is given), or one UD "
        "treebank and --run"
    },
)
