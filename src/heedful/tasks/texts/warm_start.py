"""What a run for single texts takes from another that it starts from."""

from collections.abc import Mapping, Sequence
from typing import cast

from torch import Tensor

from heedful.basics.notices import notice
from heedful.runs.start import Start
from heedful.tasks.texts.recipe import EncoderRecipe, HeadSettings
from heedful.tasks.texts.run import TextRun, as_text_run

_HEADS = "heads."


def weights_beside_heads(start: Start) -> dict[str, Tensor]:
    """The weights of another run, but for those of its heads."""
    return {name: tensor for name, tensor in start.weights.items() if not name.startswith(_HEADS)}


def weights_of_writer(start: Start, recipe: EncoderRecipe) -> dict[str, Tensor]:
    """The weights of a language model, as an encoder that reads by one has them; said."""
    heads = ", ".join(recipe.heads())
    notice(f"begins with the language model of {start.run.path}; new heads: {heads}")
    kept = weights_beside_heads(start)
    return {f"encoder.writer.{name}": tensor for name, tensor in kept.items()}


def weights_of_encoder(
    start: Start, recipe: EncoderRecipe, labels: Mapping[str, Sequence[str]]
) -> dict[str, Tensor]:
    """The weights of an encoder, and those of heads that decide on the same.

    Which heads go on and which are new is said.

    Args:
        start: the other run.
        recipe: of the new one.
        labels: what each of its heads decides on.
    """
    run = as_text_run(start.run)
    known = cast(EncoderRecipe, run.recipe)
    kept = weights_beside_heads(start)
    new = []
    taken = []
    for name, head in recipe.heads().items():
        old = _same_head(run, known, name, head, labels[name])
        if old is None:
            new.append(name)
            continue
        taken.append(name if old == name else f"{name} ('{old}' there)")
        kept |= _renamed(start.weights, old, name)
        if head.task == "masked" and head.masking.next_sentence:
            following = _renamed(start.weights, f"{old}_next", f"{name}_next")
            kept |= following
            new += [] if following else [f"{name}_next"]
    parts = [
        f"{what}: {', '.join(names)}"
        for what, names in (("heads that go on", taken), ("new heads", new))
        if names
    ]
    notice(f"begins with the encoder of {run.path}; {'; '.join(parts)}")
    return kept


def _same_head(
    run: TextRun, known: EncoderRecipe, name: str, head: HeadSettings, labels: Sequence[str]
) -> str | None:
    """The head of another run that decides on the same: that of the same name, or the first."""
    heads = known.heads()
    for other in [name, *heads]:
        if other in heads and heads[other].task == head.task and run.labels(other) == list(labels):
            return other
    return None


def _renamed(weights: Mapping[str, Tensor], old: str, new: str) -> dict[str, Tensor]:
    begin = f"{_HEADS}{old}."
    return {
        f"{_HEADS}{new}.{name.removeprefix(begin)}": tensor
        for name, tensor in weights.items()
        if name.startswith(begin)
    }
