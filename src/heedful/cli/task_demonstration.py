"""The demo of a task that brings its own data."""

import sys
from pathlib import Path

from rich.console import Console

from heedful.basics.errors import UserError
from heedful.runs.recipe import check_recipe
from heedful.tasks.commands import trainable
from heedful.tasks.spec import TaskSpec
from heedful.training import train
from heedful.viewing.figures import save_figure
from heedful.viewing.trace_view import cross_maps, trace_figure

_SHOWN = 3
"""Outputs that are shown, right ones and wrong ones."""


def demonstrate_task(task: str, out: Path, *, seed: int, threads: int | None, device: str) -> None:
    """Run the whole demo; the last line printed is ``EXACT=…``, the share of right outputs.

    Raises:
        UserError: the task has no demo, or ``out`` contains other files.
    """
    echo = Console(highlight=False, soft_wrap=True).print
    spec = trainable().get(task)
    folder, run = out / "data", out / "run"
    if out.exists() and not folder.exists() and any(out.iterdir()):
        raise UserError(f"{out} holds other files; choose another place with --out")
    demo = None if spec is None else spec.make_demo(folder)
    if spec is None or demo is None:
        raise UserError(f"--task {task} has no demo; tasks with a demo: {', '.join(_with_demo())}")
    echo(f"1. The data: {demo.about}", markup=False)
    echo("2. Training (Ctrl-C stops; rerun the command to resume)")
    sys.stdout.flush()
    own = {"device": device, **({"threads": threads} if threads else {})}
    tables = {**demo.recipe, "seed": seed, "training": {**demo.recipe["training"], **own}}
    if not train(check_recipe(tables, "the demo's recipe"), run, data=folder):
        raise KeyboardInterrupt
    echo("3. Unseen inputs")
    predictor = spec.load(run, device=device)
    written = [spec.write_result(one) for one in predictor.predict(demo.inputs)]
    right = [own == wanted for own, wanted in zip(written, demo.expected, strict=True)]
    for wanted, title in ((True, "exact"), (False, "different")):
        for place in [place for place, own in enumerate(right) if own is wanted][:_SHOWN]:
            echo(f"   {title}: {demo.names[place]}", markup=False)
            echo(f"     output     {written[place]}", markup=False)
            if not wanted:
                echo(f"     reference  {demo.expected[place]}", markup=False)
    echo("4. Attention")
    place = right.index(True) if True in right else 0
    trace = predictor.trace(demo.inputs[place], relevance=False)
    save_figure(
        trace_figure(trace, cross_maps(trace)[0], title=written[place]), out / "attention.png"
    )
    echo(f"   plotted in {out / 'attention.png'}", markup=False)
    echo("5. Next steps")
    echo(f"   heedful {spec.command} {run} {demo.names[place]}", markup=False)
    echo(f"   heedful serve {run}", markup=False)
    echo(f"   heedful train --task {task} --help", markup=False)
    print(f"EXACT={sum(right) / len(right):.2f}", flush=True)


def _with_demo() -> list[str]:
    none = TaskSpec.make_demo
    own = [name for name, spec in trainable().items() if type(spec).make_demo is not none]
    return ["translate", *own]
