"""The layout in which a run is exported, determined by its task and its model."""

from heedful.basics.errors import UserError
from heedful.runs.run import Run
from heedful.tasks.spec import spec_named


def layout_of(run: Run, exporter: str, library: str) -> str:
    """The layout of a run's model in another library.

    Args:
        run: the run.
        exporter: a key of ``TaskSpec.exporters``.
        library: the name of the library for messages.

    Raises:
        UserError: the library does not support the task or the model.
    """
    task = run.recipe.task
    layouts = spec_named(task).exporters.get(exporter, {})
    if not layouts:
        raise UserError(f"{run.path} is a run for {task}, and {library} has no model for this task")
    kind = str(run.recipe.as_tables()["model"]["kind"])
    if kind not in layouts:
        raise UserError(
            f"{run.path}: model.kind = '{kind}' cannot be exported: {library} has no such model "
            f"for {task}, only {', '.join(layouts)} (docs/interop.md)"
        )
    return layouts[kind]
