"""The base classes of the specs of tasks for single texts."""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heedful.basics.errors import UserError
from heedful.runs.registry import kind_of
from heedful.tasks.spec import Opening, TaskSpec, maps_of

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from heedful.data.examples import Example
    from heedful.evaluation.calibration import Calibration
    from heedful.evaluation.outcome import Evaluation
    from heedful.runs.facts import Facts
    from heedful.runs.run import Run
    from heedful.runs.start import Start
    from heedful.tasks.calibrating import Calibrated
    from heedful.tasks.sketch import Sketch
    from heedful.tasks.texts.examples import Examples
    from heedful.tasks.texts.heads import HeadSettings
    from heedful.tasks.texts.part import Training
    from heedful.tasks.texts.recipe import TextRecipe
    from heedful.tasks.texts.run import TextRun
    from heedful.tasks.texts.score import ScoredHead, TextScore
    from heedful.tasks.texts.sketch import SketchedHead
    from heedful.training.protocol import Task

_MOST_LABELS = 12
"""Maximum number of labels that ``heedful info`` lists."""
LEAST_SYMBOLS = 5
"""A vocabulary size for checking the model before the vocabulary is built."""


class TextSpec(TaskSpec):
    """A task of single texts."""

    has_int8: bool = False
    """Whether its predictor computes in int8."""
    has_probabilities: bool = False
    """Whether its predictor has probabilities of labels, a ``temperature``, and ``at``."""
    counted = "decisions"
    changeable_at_start = frozenset(
        {
            *("model.dropout", "model.attention_dropout", "model.ffn_dropout"),
            *("model.language_model.dropout", "model.language_model.attention_dropout"),
            # What stands above the language models of ELMo.
            *("model.frozen", "model.mixture", "model.upper_size", "model.word_pooling"),
        }
    )

    def run_type(self) -> "type[TextRun]":
        from heedful.tasks.texts.run import TextRun

        return TextRun

    def facts_type(self) -> "type[Facts]":
        from heedful.tasks.texts.facts import TextFacts

        return TextFacts

    def check_run(self, run: "Run") -> None:
        from heedful.runs.manifest import FACTS

        recorded, configured = run.facts["sets"], self.sets(run.recipe)
        if recorded.keys() != configured.keys():
            raise UserError(
                f"{run.path / FACTS} has data of {', '.join(recorded) or 'nothing'}, but the "
                f"recipe of {', '.join(configured)}; the files belong to different runs"
            )

    def sets(self, recipe: Any) -> Mapping[str, Any]:
        """Name of each head of a recipe → its data."""
        found: Mapping[str, Any] = recipe.sets()
        return found

    def setting_of_files(self, recipe: Any, part: str) -> str:
        name, _, own = part.rpartition(".")
        return f"{self.table_of(recipe, name)}.{own}"

    def table_of(self, recipe: Any, name: str) -> str:
        """The key of the data table of the head ``name``."""
        found: str = recipe.table_of(name)
        return found

    def describe(self, summary: dict[str, Any]) -> list[tuple[str, str]]:
        lines = [
            ("run", f"{summary['run']} ({summary['task']})"),
            ("vocabulary", f"{summary['vocabulary']['size']:,} symbols"),
        ]
        for name, facts in summary["sets"].items():
            labels = facts["labels"]
            shown = ", ".join(labels[:_MOST_LABELS]) + (", …" if len(labels) > _MOST_LABELS else "")
            named = f", {len(labels):,} labels: {shown}" if labels else ""
            own = "" if len(summary["sets"]) == 1 else f"{name}: "
            lines.append(("trained on", f"{own}{facts['train']:,} {facts['unit']}{named}"))
            held = f"{facts['validation']:,} validation, {facts['test']:,} test"
            lines.append(("held out", f"{own}{held}"))
        return lines

    def require_usable(self, recipe: Any) -> None:
        from heedful.models import build_encoder
        from heedful.runs.model_size import require_trainable

        require_trainable(recipe, lambda: build_encoder(recipe.model, LEAST_SYMBOLS))

    def prepare(
        self, path: Path, recipe: "TextRecipe", data_folder: Path | None, start: "Start | None"
    ) -> "Run":
        from heedful.tasks.texts.preparation import prepare_text_run

        return prepare_text_run(path, recipe, data_folder, start)

    def data_hashes(self, recipe: "TextRecipe", data_folder: Path | None) -> dict[str, list[str]]:
        from heedful.tasks.texts.preparation import text_data_hashes

        return text_data_hashes(recipe, data_folder)

    def build_model(self, run: "TextRun") -> "nn.Module":
        from heedful.tasks.texts.building import build_text_model

        return build_text_model(run)

    def outline_model(self, run: "TextRun") -> "nn.Module":
        from heedful.tasks.texts.building import outline_text_model

        return outline_text_model(run)

    def build_task(
        self, run: "TextRun", model: Any, training: Any, device: "torch.device", precision: str
    ) -> "Task":
        from heedful.tasks.texts.building import build_text_task

        return build_text_task(run, model, training, device, precision)

    def load_start(self, run: "TextRun", model: Any) -> None:
        from heedful.tasks.texts.building import load_text_start

        load_text_start(run, model)

    def amount(self, run: "TextRun") -> str:
        parts = []
        for name, facts in run.facts["sets"].items():
            labels = f" with {len(facts['labels']):,} labels" if facts["labels"] else ""
            own = f"{facts['train']:,} {facts['unit']}{labels}"
            parts.append(own if len(run.facts["sets"]) == 1 else f"{name}: {own}")
        return "; ".join(parts)

    def compile_name(self, run: "Run") -> str:
        return "encoder.encode"

    def kept_weights(
        self, start: "Start", recipe: Any, labels: Mapping[str, Sequence[str]]
    ) -> "dict[str, Tensor]":
        """The weights that a run takes from the run that it starts from."""
        from heedful.tasks.texts.warm_start import weights_without_heads

        return weights_without_heads(start)

    def adapt_chosen(self, tables: dict[str, Any], start: "Run") -> dict[str, Any]:
        from heedful.tasks.texts.default_recipe import adapt_to_start

        if kind_of(start.recipe).family not in ("encoder", "language"):
            raise UserError(f"task = '{self.name}' cannot start from a run for {start.recipe.task}")
        return adapt_to_start(tables, start.recipe)

    def evaluation_options(self) -> type[Any]:
        from heedful.tasks.texts.evaluation_options import TextEvaluation

        return TextEvaluation

    def evaluate(
        self, run: "TextRun", data: Sequence[str] | None, options: Any, opening: Opening
    ) -> "Evaluation":
        from heedful.tasks.texts.evaluation import evaluate_texts

        return evaluate_texts(run, data, options, opening)

    def calibrate(self, run: "TextRun", head: str | None, opening: Opening) -> "Calibrated":
        from heedful.tasks.texts.calibration import calibrate_head

        return calibrate_head(run, head, opening)

    def calibration(self, run: "TextRun", head: str | None, opening: Opening) -> "Calibration":
        from heedful.tasks.texts.calibration import calibration_of_head

        return calibration_of_head(run, head, opening)

    def kept(self, run: "TextRun", name: str, part: str) -> Sequence["Example"]:
        """The examples of ``validation`` or ``test`` stored in a run for a head."""
        return run.documents(name, part)

    def score(self, head: "ScoredHead") -> "TextScore":
        """Score a head of a run on examples of the type that :meth:`kept` returns."""
        raise UserError(f"{head.run.path}: {self.name} is scored head by head")

    def model_of_head(self, model: Any, recipe: Any, head: str) -> Any:
        """The encoder and its heads that a predictor of a head, or of an inner head, uses."""
        return model

    def inner_model(self, layer: Any, inner: str, name: str) -> Any:
        """The encoder of an inner head of a head with this layer; its head is called ``name``."""
        raise NotImplementedError

    def predictor_arguments(self, run: "TextRun", head: str) -> dict[str, Any]:
        """Arguments of the predictor in addition to the model and the vocabulary."""
        return {}

    def facts(self, predictor: Any) -> dict[str, Any]:
        model = predictor.model
        return {
            "architecture": type(getattr(model, "encoder", model)).__name__,
            "parameters": sum(one.numel() for one in model.parameters()),
            "device": predictor.device.type,
            "precision": predictor.precision,
            "vocabulary": predictor.vocabulary.size,
            "max_tokens": predictor.max_length,
            "maps": maps_of(model),
        }

    def reads_any_length(self, run: Any) -> bool:
        return bool(run.recipe.model.reads_any_length)


class EncoderSpec(TextSpec):
    """A task whose model is an encoder with heads."""

    family = "encoder"
    starts = frozenset({"encoder", "language"})
    exporters: Mapping[str, Mapping[str, str]] = {
        "huggingface": {"bert": "bert", "xlnet": "xlnet"},
        "onnx": {"bert": "encoder"},
    }

    def tables_from(self, run: "Run") -> dict[str, Any]:
        tables = super().tables_from(run)
        kind = kind_of(run.recipe)
        if kind.family == "language":
            tables["model"] = {"kind": "language", "language_model": tables["model"]}
        return tables

    def fresh_model(self, run: "TextRun") -> "nn.Module":
        """The model of a run with random initial weights."""
        from heedful.tasks.texts.building import headed_encoder

        return headed_encoder(run)

    def kept_weights(
        self, start: "Start", recipe: Any, labels: Mapping[str, Sequence[str]]
    ) -> "dict[str, Tensor]":
        from heedful.tasks.texts.warm_start import weights_of_encoder, weights_of_language_model

        if kind_of(start.run.recipe).family == "language":
            return weights_of_language_model(start, recipe)
        return weights_of_encoder(start, recipe, labels)

    def predictor_arguments(self, run: "TextRun", head: str) -> dict[str, Any]:
        return {"head": head}

    def sketch(self, recipe: Any) -> "Sketch":
        from heedful.tasks.texts.sketch import sketch_encoder

        return sketch_encoder(recipe)

    def heads(self, recipe: Any) -> dict[str, str]:
        return {name: str(head.task) for name, head in recipe.heads().items()}


class HeadSpec(EncoderSpec):
    """A task of a head, which a module implements with three functions of these names."""

    @abstractmethod
    def head_type(self) -> "type[HeadSettings]":
        """The settings of the head in a recipe with several heads."""

    @abstractmethod
    def head_module(self) -> Any:
        """The module with ``encode``, ``layers`` and ``build_part``."""

    def encode(
        self, folder: Path, settings: Any, examples: "Examples", vocabulary: Any, recipe: Any
    ) -> dict[str, Any]:
        """Write the encoded training examples; returns facts about them."""
        module = self.head_module()
        return dict(module.encode(folder, settings, examples, vocabulary, recipe.max_tokens))

    def layers(
        self, name: str, settings: Any, encoder: Any, labels: int, recipe: Any
    ) -> "dict[str, nn.Module]":
        """The modules of the head."""
        return dict(self.head_module().layers(name, settings, encoder, labels, recipe))

    def calibration_of(self, predictor: Any, examples: Sequence[Any]) -> "Calibration":
        """The calibration of a predictor on examples, if it has probabilities."""
        raise NotImplementedError

    def surprise_of(self, predictor: Any, examples: Sequence[Any]) -> Callable[[float], float]:
        """The mean cross-entropy of examples at a temperature, if it has probabilities."""
        raise NotImplementedError

    def outputs(self, head: "nn.Module", encoded: Any) -> "Tensor":
        """The outputs of the head for all rows, or for all tokens, for exports.

        Args:
            head: the module of the head.
            encoded: the :class:`~heedful.models.encoders.Encoded` output of the encoder.
        """
        found: Tensor = head(encoded)
        return found

    def paper_loss(self, sketch: "SketchedHead") -> "Tensor":
        """The loss of the head for made rows, for sizes on paper."""
        from heedful.tasks.texts.sketch import loss_of_labels

        return loss_of_labels(sketch)

    def facts_of_outputs(self, run: "TextRun", head: str) -> dict[str, Any]:
        """What a reader of the outputs needs to know besides the labels, as JSON."""
        return {}

    def facts_of_layer(self, layer: Any) -> dict[str, Any]:
        """What is kept with the weights of the head and a reader of its outputs needs to know."""
        return {}

    def build_part(self, name: str, settings: Any, training: "Training") -> "Task":
        """The task for the training loop."""
        task: Task = self.head_module().build_part(name, settings, training)
        return task
