"""Exports runs as Hugging Face folders: ``heedful export hf``."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from heedful.basics.bounded_reading import read_bytes, read_json
from heedful.basics.errors import UserError
from heedful.basics.files import atomic_folder, write_json
from heedful.interop.encoders import write_encoder
from heedful.interop.export_layout import layout_of
from heedful.interop.exported import GENERATION, Exported
from heedful.interop.folder import CONFIG, write_weights
from heedful.interop.importing import KEPT
from heedful.interop.pair_models import write_transformer
from heedful.interop.texts import write_gpt
from heedful.interop.xlnet import write_xlnet
from heedful.runs.opening import open_run
from heedful.runs.run import Run
from heedful.tasks.pairs.aligners import runs_of

LAYOUTS: Mapping[str, Callable[[Any, dict[str, Tensor], str | None], Exported]] = {
    "bert": write_encoder,
    "gpt": write_gpt,
    "encoder-decoder": write_transformer,
    "xlnet": write_xlnet,
}
"""Layout → function that writes a run in it; tasks name the layouts that they allow."""


def export_hf(
    run: str | Path,
    out: str | Path,
    *,
    checkpoint: str | int | None = None,
    head: str | None = None,
) -> Path:
    """Export a run's model and tokeniser for ``from_pretrained`` of transformers.

    Args:
        run: the run's folder.
        out: the folder to write, which must not exist.
        checkpoint: ``best``, ``last``, ``average`` or a step; the run's chosen one if None.
        head: the head to export, for a multi-task run.

    Raises:
        UserError: the layout does not support the run's model; the message gives the reason.
    """
    if len(runs_of(Path(run))) > 1:
        raise UserError(f"{run} is an aligner, which has no Hugging Face layout; use heedful align")
    opened, out = open_run(run), Path(out)
    if out.exists():
        raise UserError(f"{out} exists; choose another place")
    found = _exported(opened, checkpoint, head)
    config = _kept_config(opened) | found.config | {"dtype": "float32"}
    config.pop("torch_dtype", None)  # the old name of dtype
    with atomic_folder(out) as made:
        for name, content in (found.files | _kept_generation(opened)).items():
            (made / name).write_bytes(content)
        write_weights(made, found.weights)
        write_json(made / CONFIG, config)
    return out


_WITHOUT_HEADS = frozenset({"gpt", "encoder-decoder"})


def _exported(run: Run, checkpoint: str | int | None, head: str | None) -> Exported:
    name = layout_of(run, "huggingface", "Hugging Face's layout")
    if head is not None and name in _WITHOUT_HEADS:
        raise UserError(f"--head {head}: {run.path} has no heads; leave it out")
    layout = LAYOUTS[name]
    return layout(run, run.chosen(checkpoint).weights(), head)


def _kept_generation(run: Run) -> dict[str, bytes]:
    """The generation configuration that the run was imported with, if any."""
    path = run.path / KEPT / GENERATION
    return {GENERATION: read_bytes(path)} if path.exists() else {}


def _kept_config(run: Run) -> dict[str, Any]:
    """The configuration that the run was imported with, which has fields unknown to heedful."""
    path = run.path / KEPT / CONFIG
    return read_json(path) if path.exists() else {}
