"""Language model: predicts the next token of plain text."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heedful.tasks.language_model.paper_sizes import PAPER_SIZES
from heedful.tasks.spec import Command, Panel, register
from heedful.tasks.texts.spec import TextSpec

if TYPE_CHECKING:
    from torch import nn

    from heedful.runs.run import Run
    from heedful.tasks.endpoints import Endpoint
    from heedful.tasks.sketch import Sketch
    from heedful.tasks.texts.examples import Examples
    from heedful.tasks.texts.part import Training
    from heedful.tasks.texts.recipe import LanguageRecipe
    from heedful.tasks.texts.run import TextRun
    from heedful.tasks.texts.score import ScoredHead, TextScore
    from heedful.training.protocol import Task

_LEAST_SYMBOLS = 5
"""A vocabulary size for checking the model before the vocabulary is built."""


class LanguageModel(TextSpec):
    """Continues texts."""

    name = "language-model"
    place = 8
    has_outputs = False
    has_int8 = True
    exporters: Mapping[str, Mapping[str, str]] = {"huggingface": {"gpt": "gpt"}}
    paper_sizes = PAPER_SIZES
    command = "generate"
    falling = frozenset({"loss", "perplexity", "bits_per_byte"})
    does = "generates text"
    panel = Panel("write", "Write")
    trace_options = frozenset({"begins", "latest"})
    train_option = "language-model"
    corpus = "plain text"
    reading_settings = ("encoding", "documents")
    family = "language"
    starts = frozenset({"language"})

    def recipe_type(self) -> "type[LanguageRecipe]":
        from heedful.tasks.texts.recipe import LanguageRecipe

        return LanguageRecipe

    def require_usable(self, recipe: "LanguageRecipe") -> None:
        from heedful.models import build_language_model
        from heedful.runs.model_size import require_trainable

        require_trainable(recipe, lambda: build_language_model(recipe.model, _LEAST_SYMBOLS))

    def sketch(self, recipe: "LanguageRecipe") -> "Sketch":
        from heedful.tasks.texts.sketch import sketch_language_model

        return sketch_language_model(recipe)

    def choose_recipe(self, files: list[str], **settings: Any) -> dict[str, Any]:
        from heedful.tasks.texts.default_recipe import choose_language_model

        return choose_language_model(files, **settings)

    def weight_name(self, run: "Run") -> str:
        return "tokens"

    def compile_name(self, run: "Run") -> str:
        recipe: Any = run.recipe
        return "packed_states" if recipe.windows == "packed" else "states"

    def encode(
        self, folder: Path, settings: Any, examples: "Examples", vocabulary: Any, recipe: Any
    ) -> dict[str, Any]:
        """Write the encoded training examples; returns facts about them."""
        from heedful.tasks.language_model.building import encode

        return encode(folder, examples, vocabulary)

    def build_part(self, name: str, settings: Any, training: "Training") -> "Task":
        """The task for the training loop."""
        from heedful.tasks.language_model.building import build_part

        return build_part(name, settings, training)

    def fresh_model(self, run: "TextRun") -> "nn.Module":
        """The model of a run with random initial weights."""
        from heedful.models import build_language_model

        recipe: Any = run.recipe
        return build_language_model(recipe.model, run.facts["vocabulary"]["size"])

    def load(self, run: str | Path, *, head: str | None = None, **how: Any) -> Any:
        from heedful.tasks.texts.loading import load_generator

        self.refuse_head(run, head)
        return load_generator(run, **how)

    def endpoints(self) -> "Sequence[Endpoint[Any]]":
        from heedful.tasks.language_model.endpoints import ENDPOINTS

        return ENDPOINTS

    def facts(self, predictor: Any) -> dict[str, Any]:
        # The model itself may be an int8 copy, which has other parameters.
        return {**super().facts(predictor), "parameters": predictor.parameters}

    def traced(self, source: str, target: str | None) -> tuple[Any, ...]:
        return source, target

    def score(self, head: "ScoredHead") -> "TextScore":
        from heedful.tasks.language_model.evaluation import score_text

        return score_text(head.name, head.opening.load(head.run.path), head.examples)

    def commands(self, loads: Callable[..., Any]) -> Sequence[Command]:
        from heedful.tasks.language_model.command import Generate, run

        return [Command(self.command, Generate, run)]

    def predict_next(
        self, predictor: Any, inputs: Sequence[Any], first: int, lines: Sequence[int]
    ) -> Sequence[Any]:
        return [texts[0] for texts in predictor.generate_all(inputs, first=first)]

    def write_result(self, result: Any) -> str:
        return str(result.text)


register(LanguageModel())
