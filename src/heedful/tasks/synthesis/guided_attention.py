"""Guided attention, a loss on attention far from the diagonal; and complete alignments.

    L = mean over n, t of A_nt W_nt,   W_nt = 1 − exp(−(n/N − t/T)² / 2g²)

Tachibana, Uenoyama, Aihara 2018, "Efficiently Trainable Text-to-Speech System Based on Deep
Convolutional Networks with Guided Attention", section 4.1, equation 8.
Shapes: B texts, S decoding steps (the paper's T), N characters; L = N + 1 tokens, of which the last
one, n = N, is END.
"""

import torch
from torch import Tensor

MOST_SKIPPED = 4
"""Tokens that a complete alignment may skip at once: silent letters, spaces, punctuation."""


def penalties(steps: Tensor, characters: Tensor, width: float) -> Tensor:
    """W ``[B, S, N + 1]`` for n = 0 … N and t = 0 … S − 1; 0 beyond the end of a row.

    Args:
        steps: of each row ``[B]``.
        characters: N of each row ``[B]``, at least 1.
        width: g.

    Example:
        >>> penalties(torch.tensor([2]), torch.tensor([2]), 0.2)[0]
        tensor([[0.0000, 0.9561, 1.0000],
                [0.9561, 0.0000, 0.9561]])
    """
    t = torch.arange(int(steps.max()), device=steps.device)[:, None]
    n = torch.arange(int(characters.max()) + 1, device=steps.device)
    S, N = steps[:, None, None], characters[:, None, None]
    found = 1 - torch.exp(-((n / N - t / S).square()) / (2 * width * width))
    return found.masked_fill((t >= S) | (n > N), 0.0)


def guided_losses(weights: Tensor, steps: Tensor, characters: Tensor, width: float) -> Tensor:
    """The mean of A W over the steps and tokens of each row, ``[B]``.

    Args:
        weights: A ``[B, S, N + 1]``.
        steps: of each row ``[B]``.
        characters: N of each row ``[B]``, at least 1.
        width: g.
    """
    far = weights * penalties(steps, characters, width).to(weights.dtype)
    return far.sum((1, 2)) / (steps * (characters + 1))


def is_complete(weights: Tensor, *, stopped: bool, most_skipped: int = MOST_SKIPPED) -> bool:
    """Whether speech has said its text once, from the first to the last token, and has stopped.

    With the token of the largest weight at each step:

    - the first one is at most ``most_skipped`` tokens after the beginning;
    - from one step to the next it goes back by at most one token, and skips at most
      ``most_skipped`` tokens;
    - it reaches the last character or END;
    - the model stopped by itself, before the limit.

    Args:
        weights: ``[S, L]``, with END as the last token.
        stopped: whether the model stopped by itself.
        most_skipped: see above.

    Example:
        >>> is_complete(torch.eye(6), stopped=True), is_complete(torch.eye(6).flip(1), stopped=True)
        (True, False)
    """
    places = weights.argmax(1)
    moves = places.diff()
    forward = bool(((moves >= -1) & (moves <= most_skipped + 1)).all())
    begins, ends = int(places[0]) <= most_skipped, int(places.max()) >= weights.shape[1] - 2
    return stopped and forward and begins and ends
