"""Dialogue: the next turn after the turns so far."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heedful.tasks.spec import Command, Opening, Panel, register
from heedful.tasks.translation.spec import TextToTextSpec

if TYPE_CHECKING:
    import torch

    from heedful.evaluation.outcome import Evaluation
    from heedful.runs.run import Run
    from heedful.runs.start import Start
    from heedful.tasks.dialogue.recipe import DialogueRecipe
    from heedful.tasks.dialogue.run import DialogueFacts, DialogueRun
    from heedful.tasks.endpoints import Endpoint
    from heedful.training.protocol import Task


class Dialogues(TextToTextSpec):
    """Answers in a dialogue."""

    name = "dialogue"
    place = 3
    command = "chat"
    does = "answers in dialogues"
    panel = Panel("chat", "Chat", takes_second=False)
    exporters: Mapping[str, Mapping[str, str]] = {}
    listing = "readers"
    has_languages = False
    train_option = "dialogue"
    corpus = "dialogues (JSON lines with turns, or lines 'speaker: text')"
    reading_settings = ("encoding",)

    def recipe_type(self) -> "type[DialogueRecipe]":
        from heedful.tasks.dialogue.recipe import DialogueRecipe

        return DialogueRecipe

    def run_type(self) -> "type[DialogueRun]":
        from heedful.tasks.dialogue.run import DialogueRun

        return DialogueRun

    def facts_type(self) -> "type[DialogueFacts]":
        from heedful.tasks.dialogue.run import DialogueFacts

        return DialogueFacts

    def data_options(self) -> type[Any]:
        from heedful.tasks.dialogue.default_recipe import DialogueOptions

        return DialogueOptions

    def choose_recipe(self, files: list[str], **settings: Any) -> dict[str, Any]:
        from heedful.tasks.dialogue.default_recipe import choose

        return choose(files, **settings)

    def prepare(
        self, path: Path, recipe: Any, data_folder: Path | None, start: "Start | None"
    ) -> "Run":
        from heedful.tasks.dialogue.preparation import prepare_dialogue_run

        return prepare_dialogue_run(path, recipe, data_folder, start)

    def data_hashes(self, recipe: Any, data_folder: Path | None) -> dict[str, list[str]]:
        from heedful.tasks.preparation import recipe_hashes

        return recipe_hashes(recipe.data.files, recipe.vectors, data_folder)

    def build_task(
        self, run: Any, model: Any, training: Any, device: "torch.device", precision: str
    ) -> "Task":
        from heedful.tasks.dialogue.responder import HistoryEncoding
        from heedful.tasks.translation.building import build_task

        encoding = HistoryEncoding(run.tokenisers(), run.recipe.data.max_tokens)
        return build_task(run, model, training, device, precision, protection=encoding)

    def amount(self, run: Any) -> str:
        return f"{run.facts['data']['train_pairs']:,} answers"

    def describe(self, summary: dict[str, Any]) -> list[tuple[str, str]]:
        [_, *others] = super().describe(summary)
        data = summary["data"]
        who = f"answers {data['partner']} as {data['speaker']}"
        return [("run", f"{summary['run']} ({summary['task']}, {who})"), *others]

    def load(self, run: str | Path, *, head: str | None = None, **how: Any) -> Any:
        from heedful.tasks.dialogue.responder import load_responder

        self.refuse_head(run, head)
        return load_responder(run, **how)

    def load_to_serve(
        self,
        run: Path,
        head: str | None,
        with_engine: Callable[..., Any],
        *,
        examples: bool = False,
        **how: Any,
    ) -> Any:
        from heedful.tasks.dialogue.run import first_turns

        found = self.load(run, head=head, **how)
        found.notify = lambda text: None
        found.examples = first_turns(run) if examples else ()
        return found

    def languages(self, predictor: Any) -> tuple[str | None, str | None]:
        return None, None

    def title(self, model: Any) -> str:
        return str(model.name)

    def identity(self, model: Any) -> dict[str, Any]:
        return {"task": self.name}

    def facts(self, predictor: Any) -> dict[str, Any]:
        own = {"speaker": predictor.speaker, "partner": predictor.partner}
        limit = predictor.protection.limit
        return {**super().facts(predictor), "max_tokens": limit, **own}

    def input_type(self) -> Any:
        from heedful.data.readers.dialogues import Dialogue

        return Dialogue

    def predict_next(
        self, predictor: Any, inputs: Sequence[Any], first: int, lines: Sequence[int]
    ) -> Sequence[Any]:
        found: Sequence[Any] = predictor.predict(inputs, numbers=lines)
        return found

    def endpoints(self) -> "Sequence[Endpoint[Any]]":
        from heedful.tasks.dialogue.endpoints import ENDPOINTS

        return ENDPOINTS

    def evaluation_options(self) -> type[Any]:
        from heedful.tasks.dialogue.evaluation import DialogueEvaluation

        return DialogueEvaluation

    def comparison_options(self) -> Any:
        from heedful.tasks.dialogue.evaluation import DialogueEvaluation

        return DialogueEvaluation(own_history=False)

    def evaluate(
        self, run: Any, data: Sequence[str] | None, options: Any, opening: Opening
    ) -> "Evaluation":
        from heedful.tasks.dialogue.evaluation import evaluate_dialogues

        return evaluate_dialogues(run, data, options, opening)

    def evaluate_files(self, options: Any) -> "Evaluation":
        from heedful.basics.errors import UserError

        raise UserError("dialogues are evaluated with a run; give one")

    def commands(self, loads: Callable[..., Any]) -> Sequence[Command]:
        from heedful.tasks.dialogue.command import Chat, run

        return [Command(self.command, Chat, run)]


register(Dialogues())
