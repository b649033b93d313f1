"""A kernel of a convolution that another network computes.

Ha, Dai, Le 2016, "HyperNetworks", section 3.1 (static hypernetwork), equations 2 to 4.
Shapes: f side of the kernel, I and O numbers of input and output channels, Z width of the
embedding, A width of the hidden layer.
"""

import torch
from torch import Tensor, nn


class HyperKernel(nn.Module):
    """The kernel ``[O, I, f, f]`` of a layer, from an embedding z of this layer.

        a_i = W_i z + B_i        K_i = W_out a_i + B_out        for each input channel i

    W_out and B_out are the same for all input channels.

    Args:
        inputs: number of input channels I.
        outputs: number of output channels O.
        size: side of the kernel f.
        embedding: width of z.
        hidden: width of a_i.

    Example:
        >>> kernel = HyperKernel(16, 16, 7)
        >>> kernel().shape, sum(one.numel() for one in kernel.parameters())  # instead of 12,544
        (torch.Size([16, 16, 7, 7]), 4244)
    """

    def __init__(
        self, inputs: int, outputs: int, size: int, *, embedding: int = 4, hidden: int = 4
    ) -> None:
        super().__init__()
        self.shape = (outputs, inputs, size, size)
        self.embedding = nn.Parameter(torch.empty(embedding))
        self.expand = nn.Parameter(torch.empty(inputs, hidden, embedding))
        self.expand_bias = nn.Parameter(torch.zeros(inputs, hidden))
        self.output = nn.Parameter(torch.empty(outputs * size * size, hidden))
        self.output_bias = nn.Parameter(torch.zeros(outputs * size * size))
        self._reset(inputs * size * size)

    def _reset(self, fan_in: int) -> None:
        """So that values of the kernel have the variance 2 / fan_in of He et al. 2015."""
        embedding, hidden = self.expand.shape[2], self.expand.shape[1]
        nn.init.normal_(self.embedding)
        nn.init.normal_(self.expand, std=embedding**-0.5)
        nn.init.normal_(self.output, std=(2 / (fan_in * hidden)) ** 0.5)

    def forward(self) -> Tensor:
        """The kernel."""
        hidden = self.expand @ self.embedding + self.expand_bias  # [I, A]
        values = hidden @ self.output.T + self.output_bias  # [I, O f f]
        outputs, inputs, rows, columns = self.shape
        return values.reshape(inputs, outputs, rows, columns).transpose(0, 1)
