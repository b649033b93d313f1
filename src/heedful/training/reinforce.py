"""REINFORCE: training of sampled attention, which passes no gradient.

    ∇ E_a[Σ_t ℓ_t] = E_a[Σ_t ∇ℓ_t + Σ_t (Σ_{k ≥ t} ℓ_k − b) ∇ log p(a_t)],   ℓ_t = −log p(y_t | a)

Williams 1992, "Simple Statistical Gradient-Following Algorithms for Connectionist Reinforcement
Learning"; for attention Xu et al. 2015, "Show, Attend and Tell", section 4.1: the reward is the
log-likelihood, less a moving average of it, and the entropy of the choice is added to what is
maximised. There, the reward of each sample is that of the whole sentence. Here, it is that of the
tokens from the sample on, with later tokens discounted by γ, because a sample cannot affect earlier
tokens.

Shapes: B batch, H heads, T target tokens.
"""

import torch
from pydantic import Field
from torch import Tensor, nn

from heedful.attention.normalizers import Normalizer
from heedful.basics.settings import Settings
from heedful.basics.symbols import PAD
from heedful.training.protocol import Loss
from heedful.training.terms import TeacherForced, all_steps


def rewarded_modules(model: nn.Module) -> tuple[str, ...]:
    """Names of the attention modules whose normalizers are trained by reward."""
    return tuple(
        name.rpartition(".")[0].replace("_orig_mod.", "")
        for name, part in model.named_modules()
        if isinstance(part, Normalizer) and part.learns_by_reward
    )


class ReinforceSettings(Settings):
    """Settings for training sampled attention."""

    weight: float = Field(0.1, gt=0)
    """Weight of the reward."""
    discount: float = Field(0.0, ge=0, le=1)
    """γ: the credit of a sample for later tokens; with 0, only its own token counts."""
    decay: float = Field(0.9, ge=0, lt=1)
    """Decay of the moving average of rewards."""
    entropy: float = Field(0.0, ge=0)
    """Weight of the entropy bonus."""


class Reinforce:
    """The term of the loss that trains sampled attention.

    It adds ``−weight · Σ_t (R_t − b) log p(a_t) − entropy · Σ_t H_t`` over the target tokens, where
    ``R_t − b`` is short for ``Σ_{k ≥ t} γ^{k−t} (log p(y_k) − b)``, and b is the moving average of
    ``log p(y)`` a token, as it was before the batch (for the first batch, its own). With γ = 1, no
    weight but 1 and no entropy, the gradient's expectation is that of the expected cross-entropy.
    The parts of the loss are ``reinforce`` (that sum), ``entropy`` (H, a token and head) and
    ``baseline``.

    Args:
        modules: the attention modules, each queried once per target token; see
            :func:`rewarded_modules`.
        settings: weights, γ and the decay of the average.
    """

    def __init__(self, modules: tuple[str, ...], settings: ReinforceSettings | None = None) -> None:
        self.modules = modules
        self.settings = ReinforceSettings() if settings is None else settings
        # The sum of rewards weighted by their age, and the sum of these weights.
        self.average = torch.zeros(2, dtype=torch.float64)

    def loss(self, forced: TeacherForced) -> Loss:
        """The term for a batch; updates the baseline."""
        real = forced.labels != PAD
        reward = -forced.surprise
        baseline = self._baseline(reward.sum() / real.sum())
        advantage = self._discounted((reward - baseline) * real)
        total, entropies = torch.zeros_like(baseline), torch.zeros_like(baseline)
        heads = 0
        for name in self.modules:
            log_probability = all_steps(forced.seen.log_probability[name])  # [B, H, T]
            entropy = all_steps(forced.seen.entropy[name]) * real.unsqueeze(1)
            total = total - (advantage.unsqueeze(1) * log_probability).sum()
            entropies, heads = entropies + entropy.sum(), heads + entropy.shape[1]
        parts = {
            "reinforce": total.detach(),
            "entropy": entropies.detach() / heads,
            "baseline": baseline * real.sum(),
        }
        return Loss(self.settings.weight * total - self.settings.entropy * entropies, parts)

    def _baseline(self, mean: Tensor) -> Tensor:
        """The moving average before this batch; the batch's mean reward is then added to it."""
        average, total = self.average.to(mean.device, mean.dtype).unbind()
        now = torch.stack([mean.detach(), torch.ones_like(mean)]).to(self.average)
        decay = self.settings.decay
        self.average = decay * self.average + (1.0 - decay) * now
        return torch.where(total > 0, average / total.clamp(min=1e-30), mean.detach())

    def _discounted(self, rewards: Tensor) -> Tensor:
        """``Σ_{k ≥ t} γ^{k−t} r_k`` for ``rewards [B, T]``."""
        places = torch.arange(rewards.shape[1], device=rewards.device)
        later = places.unsqueeze(1) - places  # [k, t]
        credit = self.settings.discount ** later.clamp(min=0).to(rewards.dtype)
        return rewards @ credit.masked_fill(later < 0, 0.0)

    def tensors(self) -> dict[str, Tensor]:
        """The moving average."""
        return {"average": self.average}

    def load(self, tensors: dict[str, Tensor]) -> None:
        """Restore the state from :meth:`tensors`."""
        self.average = tensors["average"].cpu().clone()
