"""The weights that a run for single texts takes from the run that it starts from."""

from collections.abc import Mapping, Sequence
from typing import cast

from torch import Tensor

from heedful.basics.notices import notice
from heedful.runs.start import Start
from heedful.tasks.texts.recipe import EncoderRecipe, HeadSettings
from heedful.tasks.texts.run import TextRun, as_text_run

_HEADS = "heads."


def weights_without_heads(start: Start) -> dict[str, Tensor]:
    """The weights of another run without its heads."""
    return {name: tensor for name, tensor in start.weights.items() if not name.startswith(_HEADS)}


def weights_of_language_model(start: Start, recipe: EncoderRecipe) -> dict[str, Tensor]:
    """The weights of a language model, renamed for an encoder; a notice reports it."""
    heads = ", ".join(recipe.heads())
    notice(f"starting from the language model of {start.run.path}; new heads: {heads}")
    kept = weights_without_heads(start)
    return {f"encoder.writer.{name}": tensor for name, tensor in kept.items()}


def weights_of_encoder(
    start: Start, recipe: EncoderRecipe, labels: Mapping[str, Sequence[str]]
) -> dict[str, Tensor]:
    """The weights of an encoder, and of heads with the same task and labels.

    A notice lists the heads that are kept and those that are new.

    Args:
        start: the other run.
        recipe: the recipe of the new run.
        labels: head of the new run → its labels.
    """
    run = as_text_run(start.run)
    known = cast(EncoderRecipe, run.recipe)
    kept = weights_without_heads(start)
    new = []
    taken = []
    for name, head in recipe.heads().items():
        old = _same_head(run, known, name, head, labels[name])
        if old is None:
            new.append(name)
            continue
        taken.append(name if old == name else f"{name} ('{old}' there)")
        kept |= _renamed(start.weights, old, name)
        before = known.heads()[old].further_layers()
        for end, kind in head.further_layers().items():
            same = before.get(end) == kind
            kept |= _renamed(start.weights, f"{old}{end}", f"{name}{end}") if same else {}
            new += [] if same else [f"{name}{end}"]
    parts = [
        f"{what}: {', '.join(names)}"
        for what, names in (("kept heads", taken), ("new heads", new))
        if names
    ]
    notice(f"starting from the encoder of {run.path}; {'; '.join(parts)}")
    return kept


def _same_head(
    run: TextRun, known: EncoderRecipe, name: str, head: HeadSettings, labels: Sequence[str]
) -> str | None:
    """The head of another run with the same task and labels; one with the same name first."""
    heads = known.heads()
    for other in [name, *heads]:
        if (
            other in heads
            and head.has_layers_of(heads[other])
            and run.labels(other) == list(labels)
        ):
            return other
    return None


def _renamed(weights: Mapping[str, Tensor], old: str, new: str) -> dict[str, Tensor]:
    begin = f"{_HEADS}{old}."
    return {
        f"{_HEADS}{new}.{name.removeprefix(begin)}": tensor
        for name, tensor in weights.items()
        if name.startswith(begin)
    }
