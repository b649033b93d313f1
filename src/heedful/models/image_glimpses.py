"""Glimpses: a recurrent network that chooses where to look next in an image.

Mnih, Heess, Graves, Kavukcuoglu 2014, "Recurrent Models of Visual Attention", sections 3 and 4.1.
The place of the next glimpse is drawn from a Gaussian around the output of a network, which learns
by reward (1 if the label is right). With the read of DRAW (Gregor et al. 2015), the place is
differentiable, and nothing is drawn.
Shapes: B images, H rows, W columns, C channels, G glimpses, D hidden, N classes, M samples.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from heedful.basics.limits import MOST_LAYERS, MOST_WIDTH
from heedful.layers.dropout import Dropout
from heedful.layers.glimpses import GaussianRead, Retina
from heedful.models.images import ImageLoss, ImageModel, ImageShape
from heedful.models.registry import ImageSettings, register_model

_SEED = 1


class GlimpseSettings(ImageSettings):
    """Sizes and options of a network that reads glimpses."""

    kind: Literal["glimpses"] = "glimpses"
    glimpses: int = Field(6, ge=1, le=MOST_LAYERS)
    """Number of glimpses G."""
    glimpse_size: int = Field(8, ge=1, le=MOST_WIDTH)
    """Rows and columns of a glimpse."""
    scales: int = Field(1, ge=1, le=16)
    """Windows of a glimpse, each twice as wide as the one before."""
    read: Literal["retina", "gaussian"] = "retina"
    """Windows at a place that is drawn, or the Gaussian filters of DRAW, with gradients."""
    cell: Literal["rnn", "lstm"] = "rnn"
    """A layer of ReLU units, or an LSTM."""
    hidden_size: int = Field(256, ge=1, le=MOST_WIDTH)
    glimpse_hidden_size: int = Field(128, ge=1, le=MOST_WIDTH)
    """Width of the hidden layers that read a glimpse and its place, and of the one that chooses."""
    spread: float = Field(0.11, gt=0, le=1)
    """Standard deviation of a drawn place; the image reaches from −1 to 1."""
    samples: int = Field(1, ge=1, le=100)
    """Sequences of places drawn for each training image."""
    test_samples: int = Field(10, ge=0, le=1000)
    """Sequences of places whose class probabilities are averaged when the model is used; 0 for the
    most probable place each time."""
    reward_weight: float = Field(1.0, gt=0)
    """Weight of the reward."""
    dropout: float = Field(0.0, ge=0, lt=1)
    """Dropout before the linear layer."""


class _Pass(NamedTuple):
    """One look at a batch."""

    logits: Tensor
    """``[B, N]``"""
    log_probability: Tensor
    """Of each drawn place, ``[B, G − 1]``."""
    baseline: Tensor
    """Expected rewards ``[B, G − 1]``."""


class ImageGlimpses(ImageModel):
    """A network that reads glimpses.

    The first place is the middle. The networks that choose places and expect rewards read the state
    without passing gradients to it.

    Args:
        settings: sizes and options.
        shape: of all images.
        classes: number of classes N.

    Example:
        >>> model = ImageGlimpses(GlimpseSettings(hidden_size=8), ImageShape(28, 28, 1), 10)
        >>> model(torch.zeros(2, 28, 28, 1, dtype=torch.uint8)).shape
        torch.Size([2, 10])
    """

    def __init__(self, settings: GlimpseSettings, shape: ImageShape, classes: int) -> None:
        super().__init__()
        self.settings, drawn = settings, settings.read == "retina"
        size, hidden, inner = (
            settings.glimpse_size,
            settings.hidden_size,
            settings.glimpse_hidden_size,
        )
        scales = settings.scales if drawn else 1
        self.numbers = 2 if drawn else 5
        self.sensor: Retina | GaussianRead = Retina(size, scales) if drawn else GaussianRead(size)
        self.what = nn.Linear(scales * size * size * shape.channels, inner)
        self.where = nn.Linear(self.numbers, inner)
        self.join = nn.Linear(2 * inner, hidden)
        self.cell: nn.Module
        if settings.cell == "rnn":
            self.cell = nn.Linear(2 * hidden, hidden)
        else:
            self.cell = nn.LSTMCell(hidden, hidden)
        last = nn.Linear(inner, self.numbers)
        self.choose = nn.Sequential(nn.Linear(hidden, inner), nn.ReLU(), last)
        self.expect = nn.Linear(hidden, 1)
        self.drop = Dropout(settings.dropout)
        self.output = nn.Linear(hidden, classes)
        self.grids = {"image": (shape.rows, shape.columns)}
        if not drawn:  # the first read is of most of the image
            with torch.no_grad():
                last.weight.mul_(0.1)
                last.bias.copy_(torch.tensor([0.0, 0.0, 1.0, -0.7, 0.0]))

    def forward(self, images: Tensor) -> Tensor:
        """Logits ``[B, N]``: the logarithms of the mean probabilities of several samples.

        The numbers that are drawn are always the same: the result depends on the image only.
        """
        settings = self.settings
        count = settings.test_samples if settings.read == "retina" else 0
        if not count:
            return self.single_pass(images)
        generator = torch.Generator().manual_seed(_SEED)
        noise = torch.randn(count, settings.glimpses, 2, generator=generator)
        noise, read = noise.to(images.device), self._reading(images)
        found = [self._look(images, one, read).logits.log_softmax(1) for one in noise]
        return torch.stack(found).logsumexp(0)

    def single_pass(self, images: Tensor) -> Tensor:
        return self._look(images, None, self._reading(images)).logits

    def losses(self, images: Tensor, labels: Tensor, smoothing: float) -> ImageLoss:
        """The cross-entropy, the reward of the places, and the error of the expected rewards.

        −Σ_t (R − b_t) log π(l_t) + Σ_t (R − b_t)²     (section 3.1 and equation 2)
        """
        settings = self.settings
        if settings.read == "gaussian":
            return super().losses(images, labels, smoothing)
        count = settings.samples
        images, many = images.repeat(count, 1, 1, 1), labels.repeat(count)
        noise = torch.randn(len(images), settings.glimpses, 2).to(images.device)
        found = self._look(images, noise, self._reading(images))
        cross = F.cross_entropy(found.logits, many, reduction="sum", label_smoothing=smoothing)
        reward = (found.logits.argmax(1) == many).to(found.baseline.dtype).unsqueeze(1)
        advantage = reward - found.baseline
        places = -(advantage.detach() * found.log_probability).sum()
        total = cross + settings.reward_weight * places + advantage.square().sum()
        parts = {
            "loss": cross.detach() / count,
            "baseline": advantage.detach().square().sum() / count,
        }
        mean = found.logits.view(count, len(labels), -1).log_softmax(2).logsumexp(0)
        return ImageLoss(total / count, mean, parts)

    def _reading(self, images: Tensor) -> Callable[[Tensor], Tensor]:
        """The function from places to glimpses of images."""
        if isinstance(self.sensor, Retina):
            sums = self.sensor.sums(images, self.settings.glimpses)
            return lambda places: self.sensor(images, places, sums)
        return lambda places: self.sensor(images, places)

    def _look(
        self, images: Tensor, noise: Tensor | None, read: Callable[[Tensor], Tensor]
    ) -> _Pass:
        """Read all glimpses; places are drawn with ``noise [B or 1, G, 2]``, if it is given."""
        kind = self.output.weight.dtype
        rows, hidden = len(images), self.settings.hidden_size
        state = images.new_zeros(rows, hidden, dtype=kind)
        cell = state
        place = state.new_zeros(rows, self.numbers)
        if self.settings.read == "gaussian":
            place = self.choose(state)
        chances, expected = [], []
        for number in range(self.settings.glimpses):
            seen = read(place) / 255.0
            what, where = F.relu(self.what(seen.flatten(1))), F.relu(self.where(place))
            glimpse = F.relu(self.join(torch.cat([what, where], 1)))
            if isinstance(self.cell, nn.LSTMCell):
                state, cell = self.cell(glimpse, (state, cell))
            else:
                state = F.relu(self.cell(torch.cat([state, glimpse], 1)))
            if number + 1 < self.settings.glimpses:
                place, chance = self._next(state, noise, number)
                chances.append(chance)
                expected.append(self.expect(state.detach()).squeeze(1))
        nothing = state.new_zeros(rows, 0)
        return _Pass(
            self.output(self.drop(state)),
            torch.stack(chances, 1) if chances else nothing,
            torch.stack(expected, 1) if expected else nothing,
        )

    def _next(self, state: Tensor, noise: Tensor | None, number: int) -> tuple[Tensor, Tensor]:
        """The next place, and the logarithm of its probability, up to a constant."""
        if self.settings.read == "gaussian":
            return self.choose(state), state.new_zeros(len(state))
        middle = torch.tanh(self.choose(state.detach()))
        if noise is None:
            return middle.detach(), middle.new_zeros(len(middle))
        own = (noise if noise.dim() == 3 else noise.unsqueeze(0))[:, number].to(middle.dtype)
        drawn = (middle + self.settings.spread * own).detach()
        chance = -((drawn - middle) / self.settings.spread).square().sum(1) / 2
        return drawn.clamp(-1, 1), chance

    def attention_axes(self) -> dict[str, tuple[str, ...]]:
        return {"sensor": ("glimpses", "image")}


register_model(GlimpseSettings, ImageGlimpses)
