"""Token embeddings."""

from torch import nn

from heedful.basics.symbols import PAD


def token_embedding(vocabulary: int, dim: int) -> nn.Embedding:
    """An embedding table, initialised with normal vectors of variance 1/dim.

    The vector of PAD is initially zero, and looking it up gives it no gradient.
    """
    table = nn.Embedding(vocabulary, dim, padding_idx=PAD)
    nn.init.normal_(table.weight, std=dim**-0.5)
    nn.init.zeros_(table.weight[PAD].detach())
    return table
