"""The base class of the specs of tasks that generate a text from a text."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heedful.tasks.pairs.spec import PairSpec
from heedful.tasks.spec import Panel

if TYPE_CHECKING:
    import torch

    from heedful.tasks.endpoints import Endpoint, Model
    from heedful.tasks.pairs.run import PairRun
    from heedful.training.protocol import Task


class TextToTextSpec(PairSpec):
    """A task whose models generate a text from a text."""

    does = "translates"
    exporters: Mapping[str, Mapping[str, str]] = {
        "huggingface": {"transformer": "encoder-decoder"},
        "ctranslate2": {"transformer": "transformer"},
        "onnx": {"transformer": "translator"},
    }
    panel = Panel("translate", "Translate", takes_second=False)
    listing = "models"
    has_languages = True

    def build_task(
        self, run: "PairRun", model: Any, training: Any, device: "torch.device", precision: str
    ) -> "Task":
        from heedful.tasks.translation.building import build_task

        return build_task(run, model, training, device, precision)

    def load(
        self,
        run: str | Path,
        *,
        head: str | None = None,
        device: str = "auto",
        precision: str = "float32",
        checkpoint: str | int | None = None,
    ) -> Any:
        from heedful.tasks.pairs.building import load_translator

        self.refuse_head(run, head)
        return load_translator([run], device=device, precision=precision, checkpoint=checkpoint)

    def endpoints(self) -> "Sequence[Endpoint[Any]]":
        from heedful.tasks.pairs.endpoints import ENDPOINTS

        return ENDPOINTS

    def load_to_serve(
        self,
        run: Path,
        head: str | None,
        with_engine: Callable[..., Any],
        *,
        examples: bool = False,
        **how: Any,
    ) -> Any:
        from heedful.tasks.pairs.run import examples_of, load_memory

        translator = with_engine([run], model=True, **how)
        translator.notify = lambda text: None
        translator.memory = load_memory(run)
        translator.examples = examples_of(run) if examples else ()
        translator.translate(["."])  # warm up, so that the first request is fast
        return translator

    def languages(self, predictor: Any) -> tuple[str | None, str | None]:
        return predictor.source_language, predictor.target_language

    def title(self, model: "Model") -> str:
        return f"{model.source} to {model.target}"

    def identity(self, model: "Model") -> dict[str, Any]:
        return {"source": model.source, "target": model.target}

    def faithfulness(
        self, predictor: Any, source: str, target: str | None
    ) -> "dict[str, Any] | None":
        from heedful.basics.errors import UserError
        from heedful.basics.notices import notice
        from heedful.evaluation.faithfulness import faithfulness

        if not predictor.aligns:
            return None
        try:
            found: dict[str, Any] = faithfulness(predictor, source, target).to_json()
        except UserError as error:
            notice(f"no figure of faithfulness for this sentence: {error}")
            return None
        return found

    def write_result(self, result: Any) -> str:
        return str(result.text)
