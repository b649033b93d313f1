"""Selects the inference engine: heedful's own models and search, or CTranslate2."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from heedful.basics.device import choose_device
from heedful.basics.errors import UserError
from heedful.decoding import SearchOptions
from heedful.inference.translator import Translator
from heedful.interop.ctranslate2_engine import (
    CTranslate2Engine,
    choose_compute_type,
    choose_engine_device,
)
from heedful.interop.ctranslate2_facts import (
    Facts,
    check_quantization,
    is_export,
    read_tokenisers,
)
from heedful.interop.ctranslate2_folders import cached_export
from heedful.tasks.pairs.building import load_translator
from heedful.tasks.spec import load_run, spec_of_run

ENGINES = ("torch", "ctranslate2")


def load_with_engine(
    paths: Sequence[Path],
    *,
    engine: str = "torch",
    quantization: str | None = None,
    threads: int | None = None,
    model: bool = False,
    device: str = "auto",
    precision: str = "float32",
    checkpoint: str | int | None = None,
) -> Translator:
    """The translator of a run, or of several as an ensemble; with CTranslate2, also of an export.

    Args:
        paths: folders of runs; with CTranslate2, one run or one export.
        engine: ``torch`` or ``ctranslate2``.
        quantization: CTranslate2's data type; if None, from ``precision``, or that of an export.
        threads: workers of CTranslate2, with one thread each; PyTorch's number of threads if None.
        model: whether a run's own model is also loaded, for traces and forced prefixes.
        device: ``auto``, ``cpu``, ``cuda`` or ``mps`` (not with CTranslate2).
        precision: the precision of matrix products; ``auto`` chooses the fastest.
        checkpoint: ``best``, ``last``, ``average`` or a step; the run's own choice if None.

    Raises:
        UserError: a folder is not a run of a translator, or the engine does not support it or is
            not installed.
    """
    if engine not in ENGINES:
        raise UserError(f"unknown engine '{engine}'; use {' or '.join(ENGINES)}")
    if engine == "torch":
        if quantization is not None:
            raise UserError("--quantization needs --engine ctranslate2; leave it out")
        for path in paths:
            if is_export(path):
                raise UserError(f"{path} was exported for CTranslate2; add --engine ctranslate2")
        return load_translator(paths, device=device, precision=precision, checkpoint=checkpoint)
    if len(paths) > 1:
        raise UserError("CTranslate2 does not support ensembles; leave out --ensemble or --engine")
    path, check = paths[0], check_quantization(quantization)
    where = choose_engine_device(device)
    if is_export(path) or not (path / "run.json").exists():
        facts = Facts.read(path)
        if checkpoint is not None:
            raise UserError(f"{path} is the export of one checkpoint; leave out --checkpoint")
        compute = choose_compute_type(check, precision, where, facts.quantization)
        return _load(path, facts, where, compute, threads, None)
    compute = choose_compute_type(check, precision, where)
    folder = cached_export(path, compute, checkpoint)
    own = load_translator([path], device=device, checkpoint=checkpoint) if model else None
    return _load(folder, Facts.read(folder), where, compute, threads, own)


def heads_of(path: Path) -> dict[str, str]:
    """Head → task of a run or of an export.

    Raises:
        UserError: the folder is neither.
    """
    if is_export(path):
        return {Translator.task: Translator.task}
    run, spec = spec_of_run(path)
    return spec.heads(run.recipe)


def load_predictor(
    run: str | Path,
    *more: str | Path,
    head: str | None = None,
    engine: str = "torch",
    quantization: str | None = None,
    model: bool = True,
    **how: Any,
) -> Any:
    """The predictor of a run of any task, or an ensemble of several runs.

    Args:
        run: the run's folder; with CTranslate2, also an export.
        more: further runs with the same vocabulary, for an ensemble.
        head: the head of a multi-task run.
        engine: as for :func:`load_with_engine`.
        quantization: as for :func:`load_with_engine`.
        model: as for :func:`load_with_engine`.
        how: ``device``, ``precision`` and ``checkpoint``.

    Raises:
        UserError: a folder cannot be opened in this way.
    """
    path = Path(run)
    if not more and engine == "torch" and quantization is None and not is_export(path):
        return load_run(path, head=head, **how)
    if head is not None:
        raise UserError("head is for a single multi-task run; leave it out")
    paths = [path, *map(Path, more)]
    return load_with_engine(paths, engine=engine, quantization=quantization, model=model, **how)


def _load(
    folder: Path,
    facts: Facts,
    device: str,
    compute: str,
    threads: int | None,
    own: Translator | None,
) -> Translator:
    """A translator with an exported folder as its engine; ``own`` is the run's model, if loaded."""
    threads = torch.get_num_threads() if threads is None else threads
    return Translator(
        () if own is None else own.models,
        read_tokenisers(folder, facts),
        device=choose_device("cpu") if own is None else own.device,
        options=SearchOptions(beam=facts.beam, length_penalty=facts.length_penalty),
        source_language=facts.source,
        target_language=facts.target,
        rules=(facts.rule,),
        engine=CTranslate2Engine(
            folder, facts, device=device, compute_type=compute, threads=threads
        ),
    )
