"""Runs for single texts among those that a command is given: told apart, and opened."""

from collections.abc import Sequence
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
    from heedful.tasks.spec import spec_of_run

    texts = [run for run in runs if not is_export(run) and not spec_of_run(run)[1].has_languages]
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
    from heedful.serving import ServedReader
    from heedful.tasks.spec import spec_of_run

    found: list[ServedReader] = []
    for path, name in zip(runs, names, strict=True):
        run, spec = spec_of_run(path)
        heads = spec.heads(run.recipe)
        # Computing is the engine's: its thread alone is to have a pool of threads.
        with one_thread():
            if len(heads) == 1:
                found.append(ServedReader(name, spec.load(path, **chosen)))
                continue
            for head in heads:
                found.append(ServedReader(f"{name}/{head}", spec.load(path, head=head, **chosen)))
    for one in found:
        one.reader.say = once()
    return found
