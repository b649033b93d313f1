"""Answers to questions about stories."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from heedful.basics.errors import UserError
from heedful.basics.notices import notice
from heedful.tasks.column_spec import ColumnSpec
from heedful.tasks.spec import Command, Opening, maps_of, register

if TYPE_CHECKING:
    import torch

    from heedful.data.columns import Codec
    from heedful.evaluation.outcome import Evaluation
    from heedful.models import StoryModel
    from heedful.runs.run import Run
    from heedful.tasks.answer.examples import Answered, Asked
    from heedful.tasks.answer.predictor import StoryPredictor
    from heedful.tasks.answer.recipe import AnswerRecipe
    from heedful.tasks.answer.training import AnswerTask
    from heedful.tasks.sketch import Sketch


class Answering(ColumnSpec):
    """An answer to a question about a story."""

    name = "answer"
    place = 50
    command = "answer"
    does = "answers questions about stories"
    train_option = "answer"
    corpus = "JSON lines with story, question and answer, or files of the bAbI tasks"
    reading_settings = ("encoding",)

    def recipe_type(self) -> "type[AnswerRecipe]":
        from heedful.tasks.answer.recipe import AnswerRecipe

        return AnswerRecipe

    def choose_recipe(self, files: list[str], **settings: Any) -> dict[str, Any]:
        from heedful.tasks.answer.default_recipe import choose

        return choose(files, **settings)

    def input_type(self) -> "type[Asked]":
        from heedful.tasks.answer.examples import Asked

        return Asked

    def known(self, examples: Iterable["Answered"], recipe: Any) -> dict[str, Any]:
        from heedful.tasks.answer.encoding import collect

        found = collect(examples, recipe.model.memory, recipe.data.longer)
        if recipe.training.supervision and found["answers"] and not found["supported"]:
            raise UserError(
                "training.supervision needs supporting facts, but no training example has any; "
                'add "supports" to the examples, or set training.supervision to 0'
            )
        return found

    def codecs(self, known: Mapping[str, Any]) -> "Mapping[str, Codec]":
        from heedful.data import columns
        from heedful.tasks.answer.encoding import words_of

        size = words_of(known).size
        return {
            "story": columns.texts(size),
            "question": columns.tokens(size),
            "answer": columns.label(len(known["answers"]) + 1),
            "supports": columns.tokens(known["memory"] + 1),
        }

    def encode(self, example: Any, known: Mapping[str, Any]) -> Mapping[str, Any]:
        from heedful.tasks.answer.encoding import encode

        return encode(example, known)

    def fresh_model(self, run: Any) -> "StoryModel":
        from heedful.models import build_story_model
        from heedful.tasks.answer.encoding import answer_symbols, words_of

        known = run.facts["known"]
        size = words_of(known).size
        return build_story_model(run.recipe.model, size, answer_symbols(known))

    def sketch(self, recipe: Any) -> "Sketch":
        from heedful.tasks.answer.sketch import sketch_story_model

        return sketch_story_model(recipe)

    def task_type(self) -> "type[AnswerTask]":
        from heedful.tasks.answer.training import AnswerTask

        return AnswerTask

    def build_task(
        self, run: Any, model: Any, training: Any, device: "torch.device", precision: str
    ) -> "AnswerTask":
        from heedful.data.store import Store

        train, held_out = (Store.open(run.path / "data" / part) for part in ("train", "validation"))
        stores = (train, held_out if len(held_out) else None)
        answers = len(run.facts["known"]["answers"])
        made = self.task_type()
        return made(model, training, answers, stores, device=device, precision=precision)

    def predictor_type(self) -> "type[StoryPredictor]":
        from heedful.tasks.answer.predictor import StoryPredictor

        return StoryPredictor

    def facts(self, predictor: Any) -> dict[str, Any]:
        maps = maps_of(predictor.model, facts="slots")
        return {"maps": maps, "answers": len(predictor.known["answers"])}

    def reference(self, example: "Answered") -> str:
        return example.answer

    def evaluate(
        self, run: "Run", data: Sequence[str] | None, options: Any, opening: Opening
    ) -> "Evaluation":
        from heedful.tasks.answer.evaluation import with_files

        found = super().evaluate(run, data, options, opening)
        assert found.examples is not None
        references = found.examples.references
        answers = set(run.facts["known"]["answers"])
        if unknown := sum(one not in answers for one in references):
            notice(
                f"{unknown:,} of {len(references):,} questions have an answer that is in no "
                "training example; they count as wrong"
            )
        files: Any = getattr(run.recipe, "data")  # noqa: B009 - each task types its own
        return with_files(found, files, data) if data and len(data) > 1 else found

    def commands(self, loads: Callable[..., Any]) -> Sequence[Command]:
        from heedful.tasks.answer.command import AnswerOptions, run

        return [Command(self.command, AnswerOptions, run)]


register(Answering())
