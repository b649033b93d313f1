"""A score of your own: the negative Manhattan distance, e(q, k) = −Σ |q_i − k_i|."""

import torch
from torch import Tensor

from heedful.attention.scores import Score, register_score


class Manhattan(Score):
    def compare(self, query: Tensor, key: Tensor) -> Tensor:
        return -torch.cdist(query, key, p=1)


register_score("manhattan", lambda width: Manhattan())
