"""Glimpses against the papers' equations, pixel by pixel; and how their places learn."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.distributions import Normal

from heedful.attention import watch
from heedful.inference.relevance import weights_times_gradient
from heedful.layers.glimpses import GaussianRead, Retina
from heedful.models import ImageSettings, ImageShape, build_image_model

SHAPE = ImageShape(9, 12, 2)


def images(count: int = 3) -> Tensor:
    generator = torch.Generator().manual_seed(6)
    return torch.randint(1, 256, (count, *SHAPE[:3]), generator=generator, dtype=torch.uint8)


def made(**given: Any) -> Any:
    torch.manual_seed(5)
    table = {"kind": "glimpses", "glimpses": 3, "glimpse_size": 4, "hidden_size": 7,
             "glimpse_hidden_size": 6, **given}  # fmt: skip
    return build_image_model(ImageSettings.model_validate(table), SHAPE, 5).double()


@pytest.mark.parametrize("place", [(0.0, 0.0), (-1.0, 1.0), (0.3, -0.62)])
def test_a_retina_has_means_of_windows(place: tuple[float, float]) -> None:
    """Mnih et al. 2014, section 3.1 and figure 1."""
    own = images(1)
    found = Retina(4, 3)(own, torch.tensor([place], dtype=torch.double))
    assert found.shape == (1, 3, 4, 4, 2)
    for scale in range(3):
        factor = 2**scale
        top = round((place[0] + 1) / 2 * 9 - 2 * factor)
        left = round((place[1] + 1) / 2 * 12 - 2 * factor)
        for row in range(4):
            for column in range(4):
                total = torch.zeros(2).double()
                for down in range(factor):
                    for right in range(factor):
                        y, x = top + row * factor + down, left + column * factor + right
                        if 0 <= y < 9 and 0 <= x < 12:
                            total += own[0, y, x]
                torch.testing.assert_close(found[0, scale, row, column], total / factor**2)


@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
def test_glimpses_of_sums_are_those_of_pixels(kind: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(3)
    own = torch.randint(0, 256, (40, 31, 22, 3), generator=generator, dtype=torch.uint8)
    places = (torch.rand(40, 2, generator=generator) * 2 - 1).to(kind)
    retina = Retina(5, 4)
    sums = retina.sums(own, 6)
    assert sums is not None
    assert torch.equal(sums[:, -1, -1], own.sum((1, 2)))
    assert torch.equal(retina(own, places, sums), retina(own, places))
    # Otherwise the pixels are read: of a large image, and of one with other numbers.
    assert Retina(8, 1).sums(own[:1], 6) is None
    assert Retina(2, 2).sums(torch.zeros(1, 64, 64, 1, dtype=torch.uint8), 6) is None
    assert retina.sums(own / 2, 6) is None


def test_its_weights_are_those_of_the_mean() -> None:
    retina, places = Retina(4, 2), torch.tensor([[0.9, -0.4], [0.0, 0.2]]).double()
    with watch(retina) as seen:
        found = retina(images(2), places)
    weights = seen[""][0]
    assert weights.shape == (2, 2, 1, 108)
    pixels = images(2).double().flatten(1, 2)
    torch.testing.assert_close(found.mean((2, 3)), (weights[:, :, 0] @ pixels))


@pytest.mark.parametrize(
    ("layer", "given"),
    [(Retina(4, 2), torch.zeros(2, 2)), (GaussianRead(3), torch.zeros(2, 5))],
)
def test_rows_of_the_weights_can_be_watched(layer: Retina | GaussianRead, given: Tensor) -> None:
    with watch(layer) as seen, watch(layer, rows=[0]) as some, watch(layer, top_k=2) as most:
        layer(images(2), given)
    assert torch.equal(some[""][0], seen[""][0])
    assert torch.equal(most.top[""][0].weights, seen[""][0].topk(2).values)


def test_a_gaussian_read_is_draws() -> None:
    """Gregor et al. 2015, equations 19 to 27, filter by filter, with gradients."""
    torch.manual_seed(1)
    parameters = torch.randn(2, 5, dtype=torch.double).mul(0.3).requires_grad_()
    own = images(2).double()
    found = GaussianRead(3)(own, parameters)
    rows = []
    for image, (gy, gx, logvar, logdelta, loggamma) in zip(own, parameters, strict=True):
        centre_y, centre_x = 10 / 2 * (gy + 1) - 1, 13 / 2 * (gx + 1) - 1
        delta = (12 - 1) / (3 - 1) * logdelta.exp()
        filters = []
        for centre, size in ((centre_y, 9), (centre_x, 12)):
            bank = []
            for i in range(1, 4):
                mean = centre + (i - 3 / 2 - 0.5) * delta
                values = [(-((a - mean) ** 2) / (2 * logvar.exp())).exp() for a in range(size)]
                bank.append(torch.stack(values) / torch.stack(values).sum())
            filters.append(torch.stack(bank))
        each = [loggamma.exp() * filters[0] @ image[..., c] @ filters[1].T for c in range(2)]
        rows.append(torch.stack(each, -1))
    expected = torch.stack(rows).unsqueeze(1)
    torch.testing.assert_close(found, expected)
    probe = torch.randn_like(expected)
    got, wanted = (
        torch.autograd.grad((one * probe).sum(), parameters) for one in (found, expected)
    )
    torch.testing.assert_close(got, wanted)


def test_the_loss_is_the_papers() -> None:
    """Section 3.1: cross-entropy, REINFORCE with a baseline, and the baseline's error."""
    model, labels = made(scales=2), torch.tensor([1, 4, 0])
    torch.manual_seed(9)
    found = model.losses(images(), labels, 0.0)
    torch.manual_seed(9)
    noise = torch.randn(3, 3, 2).double()
    state, place = torch.zeros(3, 7).double(), torch.zeros(3, 2).double()
    chances, baselines = [], []
    for number in range(3):
        seen = model.sensor(images(), place).flatten(1) / 255
        both = [model.what(seen).relu(), model.where(place).relu()]
        glimpse = model.join(torch.cat(both, 1)).relu()
        state = model.cell(torch.cat([state, glimpse], 1)).relu()
        if number < 2:
            mean = model.choose(state.detach()).tanh()
            policy = Normal(mean, model.settings.spread)
            drawn = (mean + model.settings.spread * noise[:, number]).detach()
            constant = Normal(torch.zeros(2), model.settings.spread).log_prob(torch.zeros(2)).sum()
            chances.append(policy.log_prob(drawn).sum(1) - constant)
            baselines.append(model.expect(state.detach())[:, 0])
            place = drawn.clamp(-1, 1)
    logits = model.output(state)
    reward = (logits.argmax(1) == labels).double()
    expected = F.cross_entropy(logits, labels, reduction="sum")
    for chance, baseline in zip(chances, baselines, strict=True):
        expected = expected - (chance * (reward - baseline).detach()).sum()
        expected = expected + (reward - baseline).square().sum()
    torch.testing.assert_close(found.logits, logits.log_softmax(1))
    torch.testing.assert_close(found.total, expected)
    got, wanted = (torch.autograd.grad(one, list(model.parameters())) for one in
                   (found.total, expected))  # fmt: skip
    for one, other in zip(got, wanted, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize(
    "given", [{}, {"cell": "lstm", "samples": 3}, {"read": "gaussian"}], ids=str
)
def test_an_image_alone_is_classified_as_in_a_batch(given: dict[str, Any]) -> None:
    model = made(**given).eval()
    both = model(images())
    torch.testing.assert_close(model(images()[1:2]), both[1:2])
    torch.testing.assert_close(model(images()), both)  # the same numbers are drawn
    with watch(model, model.attention_axes()) as seen:
        model.single_pass(images(1))
    assert len(seen["sensor"]) == 3
    assert seen["sensor"][0].shape[-1] == 108


def test_weights_without_gradients_have_no_relevance() -> None:
    """The windows of a retina are drawn; outputs do not depend on the mean of DRAW's filters."""
    for read in ("retina", "gaussian"):
        model = made(read=read).eval()

        def decide(model: Any = model) -> Tensor:
            logits: Tensor = model.single_pass(images(1))
            return logits.log_softmax(1)[0, 0]

        assert weights_times_gradient(model, model.attention_axes(), decide) == []


def test_places_move_to_where_the_reward_is() -> None:
    """The first glimpse, of the middle, sees nothing; the label is written above it."""
    torch.manual_seed(2)
    settings = ImageSettings.model_validate(
        {"kind": "glimpses", "glimpses": 2, "glimpse_size": 3, "hidden_size": 32,
         "glimpse_hidden_size": 32, "spread": 0.3, "samples": 4, "test_samples": 0}
    )  # fmt: skip
    model: Any = build_image_model(settings, ImageShape(9, 9, 1), 2)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.005)
    for _ in range(150):
        own, labels = signs(32)
        loss = model.losses(own, labels, 0.0).total / 32
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    own, labels = signs(200)
    model.eval()
    right = (model(own).argmax(1) == labels).double().mean()
    assert right > 0.9  # by chance, 0.5


def signs(count: int) -> tuple[Tensor, Tensor]:
    """A pixel above the middle that is bright or dim."""
    labels = torch.randint(2, (count,))
    own = torch.zeros(count, 9, 9, 1, dtype=torch.uint8)
    own[:, 1, 4, 0] = (60 + 195 * labels).to(torch.uint8)
    return own, labels
