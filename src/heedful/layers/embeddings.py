"""Token embeddings."""

from torch import nn

from heedful.basics.symbols import PAD


def token_embedding(vocabulary: int, dim: int) -> nn.Embedding:
    """A table of normal vectors of variance 1/dim.

    That of PAD starts at zero, and being read gives it no gradient.
    """
    table = nn.Embedding(vocabulary, dim, padding_idx=PAD)
    nn.init.normal_(table.weight, std=dim**-0.5)
    nn.init.zeros_(table.weight[PAD].detach())
    return table
