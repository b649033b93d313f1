"""Token embeddings, and the projection back to the vocabulary."""

import torch.nn.functional as F
from torch import Tensor, nn

from heedful.basics.symbols import PAD


def token_embedding(vocabulary: int, dim: int) -> nn.Embedding:
    """A table of normal vectors of variance 1/dim; the vector of PAD is zero and stays zero."""
    table = nn.Embedding(vocabulary, dim, padding_idx=PAD)
    nn.init.normal_(table.weight, std=dim**-0.5)
    nn.init.zeros_(table.weight[PAD].detach())
    return table


def tied_logits(states: Tensor, table: nn.Embedding) -> Tensor:
    """Logits ``[.., V]`` of ``states [.., D]`` by the embedding's own table.

    Press and Wolf 2017, "Using the Output Embedding to Improve Language Models".
    """
    return F.linear(states, table.weight)
