"""Evaluation of answers: with the given turns as history, and with the model's own answers."""

from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import typer

from heedful.basics.errors import UserError
from heedful.basics.progress import progress
from heedful.data.examples import Pair
from heedful.data.readers.dialogues import Dialogue
from heedful.evaluation.metrics import perplexity, score_corpus
from heedful.evaluation.outcome import Evaluation, Examples, Figure, ReportTable, figure_table
from heedful.inference.batches import source_of, target_in_of, target_out_of
from heedful.tasks.dialogue.responder import Responder
from heedful.tasks.dialogue.run import DialogueRun
from heedful.tasks.dialogue.turns import answers, history, one_line
from heedful.tasks.options import Beam
from heedful.tasks.pairs.run import search_of
from heedful.tasks.spec import Opening


@dataclass(frozen=True)
class DialogueEvaluation:
    """What to measure."""

    beam: Beam = None
    own_history: Annotated[
        bool,
        typer.Option(
            "--own-history/--no-own-history",
            help="Also answer with the model's own answers as history.",
        ),
    ] = True


class _Asked(NamedTuple):
    """An answer of the test dialogues."""

    dialogue: int
    turn: int
    """Its number in the dialogue, from 0."""
    order: int
    """Its number among the answers of the dialogue, from 1."""
    reference: str
    distance: int | None


def evaluate_dialogues(
    run: DialogueRun, data: Sequence[str] | None, options: DialogueEvaluation, opening: Opening
) -> Evaluation:
    """Evaluate a run on test dialogues.

    Raises:
        UserError: there are no test dialogues, or they have no answer of the run's speaker.
    """
    dialogues = list(run.recipe.data.read(data)) if data else run.dialogues("test")
    if not dialogues:
        what = "has no test dialogues; give files with --data"
        raise UserError(f"{', '.join(data)} is empty" if data else f"{run.path} {what}")
    asked = _asked(dialogues, run.speaker)
    if not asked:
        raise UserError(f"the test dialogues have no turn of '{run.speaker}'")
    search = search_of(run.path, options.beam, "heedful evaluate")
    responder: Responder = opening.load(run.path)
    so_far = [
        Dialogue.model_construct(turns=dialogues[one.dialogue].turns[: one.turn]) for one in asked
    ]
    found = responder.answer_all(so_far, search, numbers=[one.dialogue + 1 for one in asked])
    outputs, references = [one.text for one in found], [one.reference for one in asked]
    right = {"given history": [a == b for a, b in zip(outputs, references, strict=True)]}
    if options.own_history:
        right["own history"] = _with_own_history(responder, dialogues, asked, search)
    sources = [history(one.turns, run.speaker) for one in so_far]
    tokenise = run.recipe.evaluation.tokenise
    figures = {f"exact match, {name}": _share(own) for name, own in right.items()}
    figures |= _token_figures(responder, [*map(Pair, sources, references)])
    figures |= _text_figures(outputs, references, tokenise)
    point = run.chosen(opening.checkpoint).path.name
    settings = {"checkpoint": point, "beam": search.beam, "precision": responder.precision}
    title = f"{len(asked):,} answers of {len(dialogues):,} dialogues"
    dropped = [one.dropped for one in found if one.dropped]
    if dropped:
        title += f"; {len(dropped):,} without the oldest turns ({sum(dropped):,} in total)"
    exact = [[float(one), 1.0] for one in right["given history"]]
    measures: dict[str, dict[str, Any]] = {
        "exact match": {"kind": "mean", "values": exact, "scale": 100.0},
        "BLEU": {"kind": "bleu", "tokenise": tokenise},
    }
    return Evaluation(
        title,
        figures,
        outputs,
        [figure_table(title, figures), *_breakdowns(asked, right)],
        {
            **Evaluation(title, figures, settings=settings).to_json(),
            "answers_without_oldest_turns": len(dropped),
            "by_distance": _by(asked, right, lambda one: one.distance),
            "by_answer": _by(asked, right, lambda one: one.order),
        },
        settings,
        Examples(sources, references, outputs, measures),
    )


def _text_figures(
    outputs: Sequence[str], references: Sequence[str], tokenise: str
) -> dict[str, Figure]:
    scores = score_corpus(outputs, references, metrics=("bleu", "chrf"), tokenise=tokenise)
    return {
        one.name: Figure(one.value, low=one.low, high=one.high, signature=one.signature)
        for one in scores
    }


def _asked(dialogues: Sequence[Dialogue], speaker: str) -> list[_Asked]:
    return [
        _Asked(number, place, order, one_line(turns[place].text), turns[place].distance)
        for number, dialogue in enumerate(dialogues)
        for turns in [dialogue.turns]
        for order, place in enumerate(answers(dialogue, speaker), start=1)
    ]


def _with_own_history(
    responder: Responder, dialogues: Sequence[Dialogue], asked: Sequence[_Asked], search: Any
) -> list[bool]:
    """Whether each answer is right after the model's own answers."""
    texts: dict[tuple[int, int], str] = {}
    with progress("answering with its own history", len(asked), "answers") as advance:
        for found in responder.own_histories(dialogues, search):
            texts |= {(number, turn): answer.text for number, turn, answer in found}
            advance(len(found))
    return [texts[one.dialogue, one.turn] == one.reference for one in asked]


def _share(right: Sequence[bool]) -> Figure:
    return Figure(100 * sum(right) / len(right), unit="%")


def _token_figures(responder: Responder, pairs: Sequence[Pair]) -> dict[str, Figure]:
    """Accuracy and perplexity of each next token of the right answers, END included."""
    right = weight = 0
    total = 0.0
    with responder.ready():
        for sources, targets in responder.encoded_batches(pairs, "token accuracy"):
            target_in = target_in_of(targets, responder.device)
            labels = target_out_of(targets, responder.device)
            source = source_of(sources, responder.device)
            logits = responder.model.teacher_force(source, target_in).float()
            real = labels != 0
            logits, labels = logits[real], labels[real]
            own = logits.log_softmax(-1).gather(-1, labels.unsqueeze(-1))
            total -= own.double().sum().item()
            right += int((logits.argmax(-1) == labels).sum())
            weight += len(labels)
    if not weight:
        return {}
    return {
        "token accuracy": Figure(100 * right / weight, unit="%"),
        "perplexity": Figure(perplexity(total, weight), rises=False),
    }


def _by(
    asked: Sequence[_Asked],
    right: Mapping[str, Sequence[bool]],
    group: Callable[[_Asked], Any],
) -> list[dict[str, Any]]:
    """The share of right answers in each group, without answers of no group."""
    found: dict[Hashable, list[int]] = defaultdict(list)
    for number, one in enumerate(asked):
        if group(one) is not None:
            found[group(one)].append(number)
    return [
        {
            "group": key,
            "answers": len(rows),
            **{
                name: 100 * sum(own[row] for row in rows) / len(rows) for name, own in right.items()
            },
        }
        for key, rows in sorted(found.items(), key=lambda item: item[0])  # type: ignore[arg-type,return-value]
    ]


def _breakdowns(asked: Sequence[_Asked], right: Mapping[str, Sequence[bool]]) -> list[ReportTable]:
    groups: list[tuple[str, str, Callable[[_Asked], int | None]]] = [
        ("exact match by the distance to the fact", "turns", lambda one: one.distance),
        ("exact match by the place of the answer", "answer", lambda one: one.order),
    ]
    tables = []
    for title, name, group in groups:
        rows = _by(asked, right, group)
        if rows:
            shown = [
                (str(one["group"]), f"{one['answers']:,}", *(f"{one[key]:.1f} %" for key in right))
                for one in rows
            ]
            tables.append(ReportTable(title, (name, "answers", *right), shown))
    return tables
