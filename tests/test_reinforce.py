"""REINFORCE against the exact gradient of an expectation, its memory, and what it teaches."""

import itertools

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heedful.attention import Attention, normalizers, scores, watch
from heedful.attention.normalizers import Queries, SampledHard
from heedful.attention.normalizers.hard import one_hot
from heedful.basics.errors import UserError
from heedful.basics.symbols import BEGIN, END, PAD
from heedful.data.batching import Batch
from heedful.models import Source, build_model
from heedful.models.recurrent import RecurrentEncoderDecoder, RecurrentSettings
from heedful.models.recurrent_mechanism import AttentionName
from heedful.runs.recipe import check_recipe, write_toml
from heedful.training.protocol import Loss
from heedful.training.reinforce import Reinforce, ReinforceSettings, rewarded_modules
from heedful.training.terms import TeacherForced

NAME = "decoder.attention"
PURE = ReinforceSettings(weight=1.0, discount=1.0, entropy=0.0)


class Given(SampledHard):
    """Draws what it is told: ``keys [T, B]``."""

    def __init__(self, keys: Tensor) -> None:
        super().__init__()
        self.keys = iter(keys)

    def forward(
        self, scores: Tensor, allowed: Tensor | None = None, queries: Queries | None = None
    ) -> Tensor:
        places = torch.arange(scores.shape[-1])
        return one_hot(scores, places == next(self.keys)[:, None, None])


def small(**others: object) -> RecurrentEncoderDecoder:
    torch.manual_seed(1)
    settings = {
        "embedding_size": 4,
        "hidden_size": 5,
        "attention": "hard-reinforce",
        "dropout": 0.0,
    }
    model = RecurrentEncoderDecoder(RecurrentSettings(**{**settings, **others}), 12, 12)
    for part in model.parameters():  # So that it matters where a step looks.
        nn.init.normal_(part, std=0.8)
    return model.double().train()


def batch_of(sources: list[list[int]], targets: list[list[int]]) -> Batch:
    def padded(rows: list[list[int]]) -> Tensor:
        longest = max(map(len, rows))
        return torch.tensor([row + [PAD] * (longest - len(row)) for row in rows])

    def lengths(rows: list[list[int]]) -> Tensor:
        return torch.tensor([len(row) for row in rows])

    out = [[*row, END] for row in targets]
    source = [[*row, END] for row in sources]
    begun = padded([[BEGIN, *row] for row in targets])
    weight = sum(map(len, out))
    return Batch(padded(source), lengths(source), begun, padded(out), lengths(out), weight)


def force(model: RecurrentEncoderDecoder, batch: Batch, term: Reinforce) -> tuple[Tensor, Loss]:
    """The cross-entropy, and the term; as the task computes them."""
    with watch(model, term.modules, keep_gradients=True) as seen:
        source = Source(batch.source, batch.source_lengths)
        logits = model.teacher_force(source, batch.target_in)
    each = F.cross_entropy(logits.transpose(1, 2), batch.target_out, reduction="none")
    surprise = each * (batch.target_out != PAD)
    return surprise.sum(), term.loss(TeacherForced(batch.target_out, seen, surprise.detach()))


def with_baseline(baseline: float, settings: ReinforceSettings = PURE) -> Reinforce:
    term = Reinforce((NAME,), settings)
    term.load({"average": torch.tensor([0.5 * baseline, 0.5], dtype=torch.float64)})
    return term


def gradient(model: nn.Module, total: Tensor) -> Tensor:
    parameters = list(model.parameters())
    found = torch.autograd.grad(total, parameters, retain_graph=True, allow_unused=True)
    pairs = zip(found, parameters, strict=True)
    return torch.cat([(torch.zeros_like(p) if g is None else g).flatten() for g, p in pairs])


def test_its_gradient_is_that_of_the_expectation() -> None:
    """All 27 ways of looking at three places in three steps, each with its probability."""
    model, batch = small(), batch_of([[5, 9]], [[7, 4]])
    exact, estimate, crossed = torch.zeros(()).double(), [], []
    for ways in itertools.product(range(3), repeat=3):
        model.decoder.attention.normalize = Given(torch.tensor(ways)[:, None])
        term = with_baseline(-1.7)
        cross_entropy, loss = force(model, batch, term)
        model.decoder.attention.normalize = Given(torch.tensor(ways)[:, None])
        with watch(model, [NAME], keep_gradients=True) as seen:
            model.teacher_force(Source(batch.source, batch.source_lengths), batch.target_in)
        probability = torch.cat(seen.log_probability[NAME]).sum().exp()
        exact = exact + probability * cross_entropy
        drawn = probability.detach()
        estimate.append(drawn * gradient(model, cross_entropy + loss.total))
        crossed.append(drawn * gradient(model, cross_entropy - loss.total))
    expected = gradient(model, exact)
    torch.testing.assert_close(sum(estimate), expected, rtol=1e-10, atol=1e-12)
    assert not torch.allclose(sum(crossed), expected, rtol=0.1)  # The other sign is another way.


def test_draws_without_a_number_of_their_own_reach_the_expectation_too() -> None:
    """The same by drawing: the mean of many batches' gradients comes near the exact one."""
    torch.manual_seed(4)
    model, one = small(), batch_of([[5, 9]], [[7]])
    exact = torch.zeros(()).double()
    for ways in itertools.product(range(3), repeat=2):
        model.decoder.attention.normalize = Given(torch.tensor(ways)[:, None])
        with watch(model, [NAME], keep_gradients=True) as seen:
            source = Source(one.source, one.source_lengths)
            logits = model.teacher_force(source, one.target_in)
        probability = torch.cat(seen.log_probability[NAME]).sum().exp()
        exact = exact + probability * F.cross_entropy(logits[0], one.target_out[0], reduction="sum")
    expected = gradient(model, exact)
    model.decoder.attention.normalize = SampledHard()
    rows = 4_000
    many = batch_of([[5, 9]] * rows, [[7]] * rows)
    cross_entropy, loss = force(model, many, with_baseline(-1.7))
    found = gradient(model, (cross_entropy + loss.total) / rows)

    assert (found - expected).norm() < 0.05 * expected.norm()
    # Without the term, the scores learn nothing, and the whole is off by as much at least.
    scoring = gradient(model.decoder.attention.score, exact)
    assert scoring.norm() > 0.01
    without = gradient(model, cross_entropy / rows)
    assert (without - expected).norm() > 0.9 * scoring.norm()


@pytest.mark.parametrize("discount", [0.0, 0.5, 1.0])
def test_rows_are_apart_and_padding_is_nothing(discount: float) -> None:
    settings = ReinforceSettings(discount=discount, entropy=0.3, weight=0.7)
    sources, targets = [[5, 9, 4], [8]], [[7], [6, 5, 11]]
    keys = torch.tensor([[0, 1], [2, 0], [1, 1], [3, 0]])

    def run(rows: list[int]) -> Tensor:
        model = small()
        model.decoder.attention.normalize = Given(keys[:, rows])
        batch = batch_of([sources[r] for r in rows], [targets[r] for r in rows])
        return gradient(model, force(model, batch, with_baseline(-2.0, settings))[1].total)

    torch.testing.assert_close(run([0, 1]), run([0]) + run([1]), rtol=1e-9, atol=1e-12)


def test_the_term_is_the_documented_sum() -> None:
    model, batch = small(), batch_of([[5, 9, 4], [8, 8]], [[7, 6], [6]])
    settings = ReinforceSettings(weight=0.7, discount=0.4, entropy=0.3)
    torch.manual_seed(3)
    loss = force(model, batch, with_baseline(-2.0, settings))[1]
    torch.manual_seed(3)
    with watch(model, [NAME]) as seen:
        source = Source(batch.source, batch.source_lengths)
        logits = model.teacher_force(source, batch.target_in)
    reward = torch.log_softmax(logits, -1).gather(-1, batch.target_out.unsqueeze(-1)).squeeze(-1)
    drawn, spread, entropies = 0.0, 0.0, seen.entropy[NAME]
    for row, length in enumerate((3, 2)):
        for t in range(length):
            to_come = sum(0.4 ** (k - t) * (reward[row, k] + 2.0) for k in range(t, length))
            drawn -= to_come * seen.log_probability[NAME][t][row].sum()
            spread += entropies[t][row].sum()
    torch.testing.assert_close(loss.total, 0.7 * drawn - 0.3 * spread)
    torch.testing.assert_close(loss.parts["reinforce"], drawn)
    torch.testing.assert_close(loss.parts["entropy"], spread)
    assert loss.parts["baseline"].item() == pytest.approx(-2.0 * 5)
    assert not any(part.requires_grad for part in loss.parts.values())


def test_the_entropy_that_is_watched_has_a_gradient_and_is_the_weights_own() -> None:
    torch.manual_seed(2)
    layer = Attention(scores.Dot(), SampledHard()).double()
    query, key = torch.randn(2, 3, 4).double().requires_grad_(), torch.randn(2, 5, 4).double()
    allowed = torch.arange(5) < torch.tensor([4, 5])[:, None, None]
    with watch(layer, keep_gradients=True) as seen:
        layer(query, key, key, mask=allowed)
    weights = torch.softmax((query @ key.mT).masked_fill(~allowed, -torch.inf), -1)
    expected = -(weights * weights.clamp(min=1e-99).log()).sum(-1).unsqueeze(1)
    torch.testing.assert_close(seen.entropy[""][0], expected)
    found = torch.autograd.grad(seen.entropy[""][0].sum(), query)[0]
    torch.testing.assert_close(found, torch.autograd.grad(expected.sum(), query)[0])
    with watch(layer.eval()) as unseen:
        layer(query, key, key, mask=allowed)
    assert not unseen.entropy[""]
    assert not unseen.log_probability[""]
    assert SampledHard().entropy(torch.zeros(1, 2), torch.zeros(1, 2, dtype=torch.bool)) == 0


def test_the_baseline_is_the_average_of_the_batches_before() -> None:
    model, term = small(), Reinforce((NAME,), ReinforceSettings(decay=0.8))
    batch, rewards = batch_of([[5, 9]], [[7, 4]]), []
    for number in range(4):
        kept = {name: tensor.clone() for name, tensor in term.tensors().items()}
        cross_entropy, loss = force(model, batch, term)
        rewards.append(-cross_entropy.item() / batch.weight)
        before = rewards[:-1] or rewards
        ages = [0.8**age for age in reversed(range(len(before)))]
        expected = sum(a * r for a, r in zip(ages, before, strict=True)) / sum(ages)
        assert loss.parts["baseline"].item() / batch.weight == pytest.approx(expected), number
    again = Reinforce((NAME,), ReinforceSettings(decay=0.8))
    again.load(kept)
    assert torch.equal(again.tensors()["average"], kept["average"])


def test_a_normalizer_says_that_it_learns_by_reward_and_settings_agree() -> None:
    for attention in AttentionName.__args__:
        settings = RecurrentSettings(
            embedding_size=4,
            hidden_size=4,
            attention=attention,
            bidirectional=attention != "luong-dot",
        )
        model = build_model(settings, 9, 9)
        assert bool(rewarded_modules(model)) == settings.learns_by_reward, attention
    assert rewarded_modules(small()) == (NAME,)
    assert not normalizers.GumbelStraightThrough().learns_by_reward


def test_the_recipe_takes_its_settings_with_drawn_attention_alone() -> None:
    tables = {"data": {"train": ["a.tsv"]}, "training": {"reinforce": {"entropy": 0.2}}}
    drawn = check_recipe(
        {**tables, "model": {"kind": "recurrent", "attention": "hard-reinforce"}}, "r"
    )
    assert drawn.training.reinforce == ReinforceSettings(entropy=0.2)
    assert "[training.reinforce]" in write_toml(drawn)
    with pytest.raises(UserError, match=r"training\.reinforce needs attention") as caught:
        check_recipe(tables, "recipe.toml")
    assert "\n" not in str(caught.value)
    with pytest.raises(UserError, match=r"did you mean 'training\.reinforce\.entropy'|entropy"):
        check_recipe({**tables, "training": {"reinforce": {"entropi": 0.2}}}, "r")
