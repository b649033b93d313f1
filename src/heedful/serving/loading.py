"""The models of a server, loaded from the folders of runs."""

from functools import partial
from pathlib import Path
from typing import Any

import torch

from heedful.basics.device import one_thread
from heedful.basics.errors import UserError
from heedful.basics.notices import notice, once
from heedful.interop.engines import heads_of, load_with_engine
from heedful.serving.served import Served, unique_names
from heedful.tasks.endpoints import plain_code
from heedful.tasks.spec import spec_named


def load_all(
    runs: list[Path],
    languages: list[str],
    engine_options: dict[str, Any] | None = None,
    *,
    several: bool = False,
    examples: bool = False,
    **chosen: Any,
) -> list[Served]:
    """Load the models of runs under unique names; each head of a multi-task run is a model.

    Args:
        runs: folders of runs.
        languages: ``RUN=source:target`` for runs whose languages are not recorded.
        engine_options: ``engine`` and ``quantization``, for tasks that support other engines.
        several: whether runs may lack languages.
        examples: whether the page may show texts of the runs' data to its visitors.
        chosen: device, precision, checkpoint.

    Raises:
        UserError: a folder is not a run, or its languages are unknown.
    """
    heads = [heads_of(run) for run in runs]
    pairs = [
        run
        for run, own in zip(runs, heads, strict=True)
        if any(spec_named(task).has_languages for task in own.values())
    ]
    given = _languages(pairs, languages)
    with_engine = partial(
        load_with_engine, threads=torch.get_num_threads(), **(engine_options or {})
    )
    found: list[Served] = []
    for path, name, own in zip(runs, unique_names(runs), heads, strict=True):
        for head, task in own.items():
            spec = spec_named(task)
            # Only the engine's thread computes, so only it may create a thread pool.
            with one_thread():
                predictor = spec.load_to_serve(
                    path,
                    head if len(own) > 1 else None,
                    with_engine,
                    examples=examples,
                    **chosen,
                )
            predictor.notify = once()
            source, target = given.get(path, spec.languages(predictor))
            if spec.has_languages and not several and (source is None or target is None):
                raise UserError(
                    f"the languages of {path} are unknown; give them: --languages {path}=en:de"
                )
            full = f"{name}/{head}" if len(own) > 1 else name
            found.append(Served(full, predictor, source, target, task))
    if not several:
        _tell_of_shared_pairs(found)
    return found


def _tell_of_shared_pairs(models: list[Served]) -> None:
    """Notify if two models translate between the same languages: the first serves the pair."""
    used: dict[tuple[str, str], str] = {}
    for one in models:
        if one.source is not None and one.target is not None:
            pair = plain_code(one.source), plain_code(one.target)
            first = used.setdefault(pair, one.name)
            if first != one.name:
                notice(
                    f"{first} and {one.name} both translate {one.source} to {one.target}; requests "
                    f"without a model's name use {first}"
                )


def _languages(runs: list[Path], given: list[str]) -> dict[Path, tuple[str, str]]:
    found: dict[Path, tuple[str, str]] = {}
    if given and not runs:
        raise UserError(f"--languages {given[0]}: no run translates; leave it out")
    for one in given:
        run, equals, pair = one.rpartition("=")
        source, colon, target = pair.partition(":")
        path = Path(run) if equals else runs[0]
        if not (colon and source and target and pair.isprintable()):
            raise UserError(f"--languages {one}: give RUN=source:target, as in {runs[0]}=en:de")
        if path not in runs or (not equals and len(runs) > 1):
            raise UserError(f"--languages {one}: name one of the runs, as in {runs[0]}=en:de")
        found[path] = (source, target)
    return found
