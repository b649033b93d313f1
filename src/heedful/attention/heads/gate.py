"""Output gate: each head's context is multiplied by a sigmoid of the input.

    Y' = Y ⊙ σ(X W_θ)

with the contexts Y of all heads and the input X that their queries are computed from. Qiu et al.
2025, "Gated Attention for Large Language Models: Non-linearity, Sparsity, and
Attention-Sink-Free", section 2.2, equation 5, at position G1 (after the attention, before the
output projection).
"""

from typing import Literal, get_args

import torch
from torch import Tensor, nn

from heedful.attention.scores.base import require_width

Per = Literal["element", "head"]


class OutputGate(nn.Module):
    """A gate in (0, 1) for each component of each head's context, or one for each head.

    Parameters: ``projection`` (W_θ), without bias.

    Args:
        dim: width of the input of the queries.
        heads: number of heads H of the contexts.
        head_dim: width E of a head's context.
        per: whether each element or each head has a gate.

    Raises:
        ValueError: a number is below 1, or ``per`` is unknown; at the call, a width does not match.

    Source: Qiu et al. 2025, section 2.2 (elementwise or headwise, head-specific, multiplicative).

    Example:
        >>> gate = OutputGate(8, heads=2, head_dim=4)
        >>> gate(torch.zeros(1, 3, 8), torch.ones(1, 2, 3, 4)).unique().detach()  # [B, H, Q, E]
        tensor([0.5000])
    """

    def __init__(self, dim: int, heads: int, head_dim: int, per: Per = "element") -> None:
        super().__init__()
        if min(dim, heads, head_dim) < 1:
            raise ValueError(
                f"dim, heads and head_dim must be at least 1, not {dim}, {heads} and {head_dim}"
            )
        if per not in get_args(Per):
            raise ValueError(f"per must be one of {get_args(Per)}, not '{per}'")
        self.dim, self.heads, self.head_dim, self.per = dim, heads, head_dim, per
        width = head_dim if per == "element" else 1
        self.projection = nn.Linear(dim, heads * width, bias=False)
        nn.init.xavier_uniform_(self.projection.weight)

    def forward(self, inputs: Tensor, contexts: Tensor) -> Tensor:
        """The gated contexts ``[.., H, Q, E]``.

        Args:
            inputs: X, ``[.., Q, dim]``.
            contexts: Y, ``[.., H, Q, E]``.
        """
        require_width("inputs", inputs, self.dim)
        gates: Tensor = torch.sigmoid(self.projection(inputs))
        gated: Tensor = contexts * gates.unflatten(-1, (self.heads, -1)).transpose(-3, -2)
        return gated

    def check(self, dim: int, heads: int, head_dim: int) -> None:
        """Raise ValueError unless the gate is for inputs and contexts of these sizes."""
        found, asked = (self.dim, self.heads, self.head_dim), (dim, heads, head_dim)
        if found != asked:
            raise ValueError(
                f"gate is for dim, heads and head_dim {found}, but the contexts have {asked}"
            )

    def extra_repr(self) -> str:
        return f"per='{self.per}'"
