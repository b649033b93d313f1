"""Runs for single texts among those that a command is given: told apart, and opened."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from heedful.serving import ServedReader


def split_runs(runs: Sequence[Path]) -> tuple[list[Path], list[Path]]:
    """Runs for pairs, and runs for single texts, each in their order.

    Raises:
        UserError: a folder is no run.
    """
    if not runs:
        return [], []
    from heedful.interop.ctranslate2_facts import is_export
    from heedful.runs.run import open_run
    from heedful.tasks.texts.run import TextRun

    texts = [run for run in runs if not is_export(run) and isinstance(open_run(run), TextRun)]
    return [run for run in runs if run not in texts], texts


def load_readers(runs: Sequence[Path], names: Sequence[str], **chosen: Any) -> "list[ServedReader]":
    """What each run has learnt, ready to be asked; of several things, ``name/head`` each.

    Args:
        runs: for single texts.
        names: what each is called.
        chosen: device, precision, checkpoint.

    Raises:
        UserError: a run cannot be opened.
    """
    if not runs:
        return []
    from heedful.basics.device import one_thread
    from heedful.basics.notices import once
    from heedful.runs.run import open_run
    from heedful.serving import ServedReader
    from heedful.serving.readers import Reader
    from heedful.tasks.texts.loading import (
        load_classifier,
        load_filler,
        load_generator,
        load_tagger,
    )
    from heedful.tasks.texts.recipe import EncoderRecipe

    loaders: dict[str, Callable[..., Reader]] = {
        "classification": load_classifier,
        "tagging": load_tagger,
        "masked": load_filler,
    }
    found: list[ServedReader] = []
    for run, name in zip(runs, names, strict=True):
        recipe = open_run(run).recipe
        # Computing is the engine's: its thread alone is to have a pool of threads.
        with one_thread():
            if not isinstance(recipe, EncoderRecipe):
                found.append(ServedReader(name, load_generator(run, **chosen)))
                continue
            heads = recipe.heads()
            for head, settings in heads.items():
                own = name if len(heads) == 1 else f"{name}/{head}"
                reader = loaders[settings.task](run, head=head, **chosen)
                found.append(ServedReader(own, reader))
    for one in found:
        one.reader.say = once()
    return found
