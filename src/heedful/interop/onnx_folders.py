"""Exports runs for ONNX: ``heedful export onnx``."""

import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

from heedful.basics.errors import UserError
from heedful.basics.files import atomic_folder, write_json
from heedful.basics.symbols import BEGIN, END, PAD, UNKNOWN
from heedful.interop.encoders import chosen_head
from heedful.interop.export_layout import layout_of
from heedful.interop.onnx_graphs import Graph, encoder_graphs, translator_graphs, write_graph
from heedful.models.encoders import HeadedEncoder
from heedful.models.transformer import Transformer
from heedful.runs.opening import open_run
from heedful.runs.run import Run
from heedful.tasks.pairs.building import load_run_model
from heedful.tasks.pairs.run import PairRun
from heedful.tasks.spec import spec_named
from heedful.tasks.texts.building import load_text_model
from heedful.tasks.texts.recipe import EncoderRecipe
from heedful.tasks.texts.run import as_text_run
from heedful.tasks.texts.spec import HeadSpec

FILE = "onnx.json"
_SYMBOLS = {"pad": PAD, "unknown": UNKNOWN, "begin": BEGIN, "end": END}


def export_onnx(
    run: str | Path,
    out: str | Path,
    *,
    checkpoint: str | int | None = None,
    head: str | None = None,
) -> Path:
    """Export a run's model as ONNX graphs, with its tokeniser and a description.

    Each graph is run with onnxruntime once, and compared with the model.

    Args:
        run: the run's folder.
        out: the folder to write, which must not exist.
        checkpoint: ``best``, ``last``, ``average`` or a step; the run's chosen one if None.
        head: the head to export, for a multi-task run.

    Raises:
        UserError: a package is missing, or the model has no ONNX form; the message gives the
            reason.
    """
    _require_packages()
    opened, out = open_run(run), Path(out)
    if out.exists():
        raise UserError(f"{out} exists; choose another place")
    layout = layout_of(opened, "onnx", "heedful's ONNX export")
    read = _of_encoder if layout == "encoder" else _of_translator
    graphs, facts = read(opened, checkpoint, head)
    with atomic_folder(out) as folder:
        for graph in graphs:
            write_graph(graph, folder, str(opened.path))
        shutil.copytree(opened.path / "tokeniser", folder / "tokeniser")
        files = [graph.file for graph in graphs]
        about = {"task": opened.recipe.task, "files": files, "symbols": _SYMBOLS, **facts}
        write_json(folder / FILE, about)
    return out


def _require_packages() -> None:
    for name in ("onnx", "onnxscript", "onnxruntime"):
        if find_spec(name) is None:
            raise UserError(f"the package {name} is not installed (pip install 'heedful[onnx]')")


def _of_encoder(
    run: Run, checkpoint: str | int | None, head: str | None
) -> tuple[list[Graph], dict[str, Any]]:
    opened = as_text_run(run)
    recipe = cast(EncoderRecipe, opened.recipe)
    name = chosen_head(opened, recipe, head)
    task = cast(HeadSpec, spec_named(recipe.heads()[name].task))
    model = cast(HeadedEncoder, load_text_model(opened, checkpoint)).eval()
    module = model.heads[name]
    facts = {
        "head": name,
        "labels": opened.labels(name),
        "max_length": model.max_length,
        **task.facts_of_outputs(opened, name),
        **task.facts_of_layer(module),
    }
    return encoder_graphs(model, lambda encoded: task.outputs(module, encoded)), facts


def _of_translator(
    run: Run, checkpoint: str | int | None, head: str | None
) -> tuple[list[Graph], dict[str, Any]]:
    spec_named(run.recipe.task).refuse_head(run.path, head)
    model = cast(Transformer, load_run_model(cast(PairRun, run), checkpoint)).eval()
    facts = {
        "layers": len(model.decoder),
        "heads": model.settings.decoder_heads or model.settings.heads,
        "max_length": model.max_length,
    }
    first = cast(PairRun, run).tokenisers().target.first
    facts |= {} if first is None else {"first": first}
    return translator_graphs(model), facts
