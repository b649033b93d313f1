"""The Conformer's block: convolution beside self-attention.

    x ← x + ½ FFN(x)     x ← x + SelfAttn(x)     x ← x + Conv(x)     y = LayerNorm(x + ½ FFN(x))

Gulati et al. 2020, "Conformer: Convolution-augmented Transformer for Speech Recognition", equation
1 and figures 1 to 4. Each part normalizes its input and is followed by dropout. In the convolution
module, layer normalization takes the place of batch normalization, so that a sound is the same
alone and beside others, in training and when the model is used.
Shapes: B sounds, S positions, D width.
"""

import torch.nn.functional as F
from torch import Tensor, nn

from heedful.attention.settings import AttentionSettings
from heedful.layers.transformer import BlockOptions, FeedForward, Residual


class ConvolutionModule(nn.Module):
    """``W₂ swish(LN(depthwise(GLU(W₁ x))))``, ``[B, S, D] -> [B, S, D]``.

    Positions after the end of a sound count as 0.

    Args:
        dim: D.
        kernel: positions that the depthwise convolution reads, odd.

    Raises:
        ValueError: the kernel is even.

    Source: Gulati et al. 2020, section 2.2 and figure 2.

    Example:
        >>> import torch
        >>> ConvolutionModule(8, kernel=3)(torch.zeros(2, 5, 8), None).shape
        torch.Size([2, 5, 8])
    """

    def __init__(self, dim: int, kernel: int) -> None:
        super().__init__()
        if kernel % 2 == 0:
            raise ValueError(f"the kernel must be odd, not {kernel}")
        self.expand = nn.Linear(dim, 2 * dim, bias=False)
        self.depthwise = nn.Conv1d(dim, dim, kernel, padding=kernel // 2, groups=dim, bias=False)
        self.norm = nn.LayerNorm(dim)
        self.contract = nn.Linear(dim, dim, bias=False)

    def forward(self, hidden: Tensor, there: Tensor | None) -> Tensor:
        """The output for ``hidden [B, S, D]``.

        Args:
            hidden: the input.
            there: which positions exist, booleans ``[B, S]``; None for all.
        """
        gated = F.glu(self.expand(hidden), -1)
        if there is not None:
            gated = gated.masked_fill(~there[..., None], 0)
        mixed = self.depthwise(gated.mT).mT
        result: Tensor = self.contract(F.silu(self.norm(mixed)))
        return result


class ConformerLayer(nn.Module):
    """A block, ``[B, S, D] -> [B, S, D]``.

    Args:
        options: sizes and options; ``pre_norm`` is always true.
        attention: of its self-attention.
        kernel: see :class:`ConvolutionModule`.
        number: number of the layer, counted from 1.
    """

    def __init__(
        self, options: BlockOptions, attention: AttentionSettings, *, kernel: int, number: int = 1
    ) -> None:
        super().__init__()
        options = options._replace(pre_norm=True)
        self.before, self.after = FeedForward(options), FeedForward(options)
        self.self_attention = attention.build_self(options.dim, "self", layer=number)
        self.convolution = ConvolutionModule(options.dim, kernel)
        self.around_before, self.around_after = Residual(options), Residual(options)
        self.around_self, self.around_convolution = Residual(options), Residual(options)
        self.norm = nn.LayerNorm(options.dim)

    def forward(self, hidden: Tensor, mask: Tensor | None) -> Tensor:
        """The output for ``hidden [B, S, D]``.

        Args:
            hidden: the input.
            mask: which positions exist, booleans ``[B, 1, 1, S]``; None for all.
        """
        there = None if mask is None else mask[:, 0, 0]
        hidden = self.around_before(hidden, lambda x: 0.5 * self.before(x))
        hidden = self.around_self(hidden, lambda x: self.self_attention(x, x, mask=mask))
        hidden = self.around_convolution(hidden, lambda x: self.convolution(x, there))
        hidden = self.around_after(hidden, lambda x: 0.5 * self.after(x))
        result: Tensor = self.norm(hidden)
        return result
