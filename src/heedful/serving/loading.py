"""The models of a server, loaded from the folders of runs."""

from pathlib import Path
from typing import Any

import torch

from heedful.basics.device import one_thread
from heedful.basics.errors import UserError
from heedful.basics.notices import once
from heedful.interop.ctranslate2_facts import is_export
from heedful.interop.engines import load_with_engine
from heedful.serving.served import Served, names_of
from heedful.tasks.endpoints import plain_code
from heedful.tasks.spec import spec_named, spec_of_run


def load_all(
    runs: list[Path],
    languages: list[str],
    asked: dict[str, Any] | None = None,
    *,
    several: bool = False,
    **chosen: Any,
) -> list[Served]:
    """The models of runs, by names that are all different; of several heads, ``name/head`` each.

    Args:
        runs: folders of runs.
        languages: ``RUN=source:target`` for those that do not know them.
        asked: of what translates: engine, quantization.
        several: whether runs may have no languages, or the same.
        chosen: device, precision, checkpoint.

    Raises:
        UserError: a folder is no run, its languages are not known, or two runs translate between
            the same.
    """
    tasks = [None if is_export(run) else spec_of_run(run) for run in runs]
    pairs = [run for run, one in zip(runs, tasks, strict=True) if not one or one[1].translates]
    given = _languages(pairs, languages)
    found: list[Served] = []
    for path, name, task in zip(runs, names_of(runs), tasks, strict=True):
        if task is None or task[1].translates:
            own = None if task is None else task[1].name
            found.append(_translating(path, name, own, given, several, **(asked or {}), **chosen))
            continue
        run, spec = task
        heads = spec.heads(run.recipe)
        for head, decides in heads.items():
            # Computing is the engine's: its thread alone is to have a pool of threads.
            with one_thread():
                predictor = spec.load(path, head=head if len(heads) > 1 else None, **chosen)
            predictor.say = once()
            full = f"{name}/{head}" if len(heads) > 1 else name
            found.append(Served(full, predictor, task=spec_named(decides).name))
    if not several:
        _require_different(found, dict(zip(names_of(runs), runs, strict=True)))
    return found


def _require_different(models: list[Served], paths: dict[str, Path]) -> None:
    """Raise UserError if two models translate between the same languages."""
    taken: dict[tuple[str, str], Path] = {}
    for one in models:
        if one.source is None or one.target is None:
            continue
        run = paths[one.name]
        pair = plain_code(one.source), plain_code(one.target)
        if pair in taken:
            raise UserError(
                f"{taken[pair]} and {run} both translate {one.source} to {one.target}; leave one "
                f"out, or give it another code: --languages {run}={one.source}:{one.target}-x-2"
            )
        taken[pair] = run


def _translating(
    run: Path,
    name: str,
    task: str | None,
    given: dict[Path, tuple[str, str]],
    several: bool,
    **chosen: Any,
) -> Served:
    """A run's translator that has translated once, so that the first client need not wait."""
    threads = torch.get_num_threads()
    # Computing is the engine's: its thread alone is to have a pool of threads.
    with one_thread():
        translator = load_with_engine([run], threads=threads, model=True, **chosen)
        source, target = given.get(run, (translator.source_language, translator.target_language))
        if not several and (source is None or target is None):
            raise UserError(
                f"{run} does not know its languages; give them: --languages {run}=en:de"
            )
        translator.say = lambda text: None
        translator.translate(["."])
    translator.say = once()
    return Served(name, translator, source, target, task)


def _languages(runs: list[Path], given: list[str]) -> dict[Path, tuple[str, str]]:
    found: dict[Path, tuple[str, str]] = {}
    for one in given:
        run, equals, pair = one.rpartition("=")
        source, colon, target = pair.partition(":")
        path = Path(run) if equals else runs[0]
        if not (colon and source and target and pair.isprintable()):
            raise UserError(f"--languages {one}: give RUN=source:target, as in {runs[0]}=en:de")
        if path not in runs or (not equals and len(runs) > 1):
            raise UserError(f"--languages {one}: say for which of the runs, as {runs[0]}=en:de")
        found[path] = (source, target)
    return found
