"""The loss of tokens in random orders on paper."""

from typing import cast

import torch
from torch import Tensor

from heedful.models.xlnet import Predicted, XLNet
from heedful.tasks.texts.sketch import SketchedHead, cross_entropy


def paper_loss(head: SketchedHead) -> Tensor:
    """The loss of the share of tokens that is predicted, with the memory of the recipe."""
    encoder, own = cast(XLNet, head.model.encoder), head.settings.permutation
    rows, _ = head.rows.tokens.shape
    count = head.chosen(1 / own.one_in)
    order = torch.full_like(head.rows.tokens, -1)
    order[:, :count] = torch.arange(count)
    places = torch.arange(count).expand(rows, count)
    earlier = None
    if own.memory:
        before = head.rows.tokens.new_ones((rows, own.memory))
        earlier = encoder.remember(before, before.bool())
    query = encoder.streams(head.rows, Predicted(order, places), earlier, query_only=True).query
    assert query is not None
    return cross_entropy(head.layer(query), torch.zeros((rows, count), dtype=torch.long))
