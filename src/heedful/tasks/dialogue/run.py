"""Runs that answer in dialogues."""

from dataclasses import dataclass
from pathlib import Path
from typing import cast

from pydantic import ValidationError

from heedful.basics.bounded_reading import read_json_lines
from heedful.basics.errors import UserError
from heedful.data.examples import Pair
from heedful.data.readers.dialogues import Dialogue
from heedful.runs.facts import Count
from heedful.runs.opening import open_run
from heedful.runs.run import no_examples
from heedful.tasks.dialogue.recipe import DialogueRecipe
from heedful.tasks.dialogue.turns import pairs_of
from heedful.tasks.pairs.facts import PairData, PairFacts
from heedful.tasks.pairs.run import PairRun

_EXAMPLES = 3


class DataFacts(PairData):
    """The facts about the dialogues."""

    speaker: str
    """Whose turns the model has learnt."""
    partner: str
    """Whom it answers."""
    shortened: Count
    """Training answers whose oldest turns before are left out."""


class DialogueFacts(PairFacts):
    """The facts in ``run.json``."""

    data: DataFacts


@dataclass(frozen=True)
class DialogueRun(PairRun):
    """A run that answers in dialogues."""

    recipe: DialogueRecipe

    @property
    def speaker(self) -> str:
        """Whose turns the model has learnt."""
        return str(self.facts["data"]["speaker"])

    @property
    def partner(self) -> str:
        """Whom it answers."""
        return str(self.facts["data"]["partner"])

    def dialogues(self, part: str) -> list[Dialogue]:
        """The ``validation`` or ``test`` dialogues stored in the run; empty if there are none."""
        name = f"data/{part}.jsonl"
        self.require_unchanged(name)
        try:
            return [Dialogue.model_validate(one) for one in read_json_lines(self.path / name)]
        except ValidationError as error:
            raise no_examples(self.path / name) from error

    def pairs(self, part: str) -> list[Pair]:
        """The answers of the ``validation`` or ``test`` dialogues, with the turns before them."""
        return [pair for one in self.dialogues(part) for pair in pairs_of(one, self.speaker)]


def first_turns(folder: Path) -> tuple[str, ...]:
    """Up to three first turns of the validation dialogues, as examples; none without them."""
    try:
        run = open_dialogue_run(folder)
        found = [one.turns[0] for one in run.dialogues("validation")]
    except UserError:
        return ()
    texts = [turn.text for turn in found if turn.speaker == run.partner and len(turn.text) <= 90]
    return tuple(dict.fromkeys(texts))[:_EXAMPLES]


def open_dialogue_run(path: str | Path) -> DialogueRun:
    """Like :func:`open_run`, for a run that answers in dialogues.

    Raises:
        UserError: also for a run of another task.
    """
    run = open_run(path)
    if run.recipe.task != "dialogue":
        raise UserError(f"{path} is a run for {run.recipe.task}, not for dialogues")
    return cast(DialogueRun, run)
