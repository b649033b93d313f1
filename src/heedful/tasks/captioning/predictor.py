"""Describes images, and shows which parts of them each word comes from.

Shapes: A images, T target tokens.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from heedful.basics.notices import counted_notice, once
from heedful.basics.symbols import BEGIN, END
from heedful.basics.thread_contention import without_contention
from heedful.data.image_batches import images_of
from heedful.decoding import Hypothesis, SearchOptions, search
from heedful.inference import Axis, Media, Trace
from heedful.inference.fusing import searched
from heedful.inference.searcher import ended_by_limit
from heedful.inference.tracing import BEGIN_LABEL, END_LABEL, Decision, Described
from heedful.models import CaptionModel, Scenes
from heedful.models.image_features import FRAMES
from heedful.tasks.captioning.words import words_of, written
from heedful.tasks.column_predictor import ColumnPredictor
from heedful.tasks.image_input import Seen


class Caption(NamedTuple):
    """The description of an image."""

    text: str
    log_probability: float
    """Natural logarithm of its probability."""
    others: Sequence[tuple[str, float]] = ()
    """Further descriptions with their log-probabilities, if several are asked for."""

    def __str__(self) -> str:
        return self.text

    def to_json(self) -> dict[str, Any]:
        """The result as a value that :mod:`json` can write."""
        found: dict[str, Any] = {"text": self.text, "log_probability": self.log_probability}
        if self.others:
            found["others"] = [{"text": text, "log_probability": own} for text, own in self.others]
        return found


def find_captions(
    model: CaptionModel,
    images: Tensor,
    options: SearchOptions,
    keys: Sequence[int] | None = None,
) -> list[list[Hypothesis]]:
    """The best hypotheses for ``images [A, H, W, C]``, in evaluation mode.

    Args:
        model: the model.
        images: bytes.
        options: of the search.
        keys: for samples, a number for each image; by default its place.
    """
    limits = torch.full((len(images),), model.max_length, device=images.device)
    with without_contention(images.device):
        return search(
            searched(model),
            Scenes(images),
            rows=len(images),
            options=options,
            max_lengths=limits,
            keys=keys,
        )


class Captioner(ColumnPredictor[CaptionModel, Seen, Caption]):
    """Describes images with a trained model.

    Attributes:
        options: the settings of the search, initially those of the recipe.
    """

    def __init__(self, *given: Any, **how: Any) -> None:
        super().__init__(*given, **how)
        self.options: SearchOptions = self.recipe.decoding
        self.notify = once()

    def answer_keyed(self, inputs: Sequence[Seen], keys: Sequence[int]) -> list[Caption]:
        """One description for each of some images."""
        found = find_captions(self.model, images_of(self.batch(inputs)), self.options, keys)
        longest = self.model.max_length
        ended = sum(ended_by_limit(own, longest, self.options) for own in found)
        counted_notice(self.notify, self._ended, ended, len(found))
        return [self._caption(hypotheses) for hypotheses in found]

    def _ended(self, ended: int, captions: int) -> str:
        return (
            f"{ended:,} of {captions:,} captions were ended after {self.model.max_length - 1:,} "
            "words (model.max_length)"
        )

    def _caption(self, hypotheses: Sequence[Hypothesis]) -> Caption:
        best, *others = [
            (written(one.tokens, self.known), one.log_probability) for one in hypotheses
        ]
        return Caption(*best, others)

    def trace(self, seen: Seen, relevance: bool = True) -> Trace:
        """What the model attends to while it describes an image.

        Args:
            seen: the image.
            relevance: whether to add relevance maps.
        """
        pixels = torch.from_numpy(seen.pixels(self.known["form"]).copy())
        images = pixels.unsqueeze(0).to(self.device)
        with self.ready():
            [[best, *_]] = find_captions(self.model, images, self.options)
        names = words_of(self.known).pieces(best.tokens)
        frames = self.model.shape.frames
        strip = torch.cat(pixels.chunk(frames), 1)  # beside each other
        shown = Media.small_picture(strip[..., 0] if strip.shape[-1] == 1 else strip)
        axes = {"target": Axis("tokens", [BEGIN_LABEL, *names])}
        for name, grid in self.model.grids.items():
            axes[name] = Axis("image", extent=grid, media=shown)
        if frames > 1:
            axes[FRAMES] = Axis("frames", extent=(frames,), media=shown)
        target = torch.tensor([[BEGIN, *best.tokens, END]], device=self.device)

        def decide() -> Decision:
            logits = self.model.teacher_force(Scenes(images), target[:, :-1]).float()
            own = logits.log_softmax(-1).gather(-1, target[:, 1:, None])
            return Decision([*names, END_LABEL], own[0, :, 0])

        title = written(best.tokens, self.known)
        return self.traced(Described(title, axes), decide, relevance=relevance)
