"""The predictions of the layers of a language model over many texts: the logit lens.

    p_ℓ = softmax(W N(h_ℓ))   with the model's own last norm N and output matrix W

nostalgebraist 2020, "interpreting GPT: the logit lens". :mod:`heedful.inference.lens` shows one
text. Layer 0 is the sum of the embeddings, before the first layer.
Shapes: S layers with the embeddings, L tokens of a text, D width, V vocabulary, P predictions.
"""

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from heedful.basics.errors import UserError
from heedful.inference.inference_mode import ready
from heedful.models.language import LanguageModel

_ROWS = 256
"""Predictions whose logits are computed at a time."""


class LayerPredictions(NamedTuple):
    """What each layer predicts after each token, beside the final prediction: the last layer's
    most probable token."""

    rank: Tensor
    """The rank of the final prediction ``[S, P]``; 1 is the most probable token."""
    probability: Tensor
    """The probability of the final prediction ``[S, P]``."""
    divergence: Tensor
    """KL(final ‖ layer) ``[S, P]``, in nats."""
    loss: Tensor
    """−ln of the probability of the token that follows in the text ``[S, P]``."""
    best: Tensor
    """The most probable token of each layer ``[S, P]``."""
    best_probability: Tensor
    """Its probability ``[S, P]``."""


def layer_predictions(
    model: LanguageModel, texts: Iterable[Sequence[int]], device: torch.device
) -> LayerPredictions:
    """The predictions of all layers.

    Args:
        model: a language model, on ``device``.
        texts: the tokens of each text, its first END included; of at most ``max_length`` + 1
            tokens, all but the first of which are predicted.
        device: where to compute.

    Raises:
        UserError: the states of the model's layers cannot be read as next tokens, or there is
            nothing to predict.
    """
    parts: list[LayerPredictions] = []
    with ready(model, device):
        for text in texts:
            states = states_of_layers(model, torch.tensor([text[:-1]], device=device))
            following = torch.tensor(text[1:], device=device)
            for rows, wanted in zip(states.split(_ROWS, 1), following.split(_ROWS), strict=True):
                parts.append(_predictions(model, rows, wanted))
    if not parts:
        raise UserError("there is no text of at least two tokens to predict")
    return LayerPredictions(*(torch.cat(column, dim=1) for column in zip(*parts, strict=True)))


def states_of_layers(model: LanguageModel, tokens: Tensor) -> Tensor:
    """The states before the first layer and after each ``[S, L, D]``, of ``tokens [1, L]``.

    Raises:
        UserError: the states of the model's layers cannot be read as next tokens.
    """
    names = model.layer_states()
    if not names:
        raise UserError(
            "this model has no layers whose states can be read as next tokens; give the run of a "
            "GPT"
        )
    seen: list[Tensor] = []

    def keep(module: nn.Module, given: tuple[Any, ...], output: Tensor) -> None:
        if not seen:
            seen.append(given[0][0])
        seen.append(output[0])

    with ExitStack() as stack:
        for name in names:
            handle = model.get_submodule(name).register_forward_hook(keep)
            stack.callback(handle.remove)
        model.states(tokens)
    return torch.stack(seen)


def _predictions(model: LanguageModel, states: Tensor, following: Tensor) -> LayerPredictions:
    """The predictions from ``states [S, P, D]``, when the tokens ``following [P]`` come next."""
    final = model.read_layer(states[-1]).float().log_softmax(-1)  # [P, V]
    decided = final.argmax(-1, keepdim=True)
    rows = []
    for own in states:
        logs = model.read_layer(own).float().log_softmax(-1)
        chosen = logs.gather(1, decided)
        best = logs.max(-1)
        divergence = torch.nn.functional.kl_div(logs, final, reduction="none", log_target=True)
        loss = -logs.gather(1, following.unsqueeze(1)).squeeze(1)
        rank = (logs > chosen).sum(1) + 1
        share = chosen.squeeze(1).exp()
        rows.append((rank, share, divergence.sum(1), loss, best.indices, best.values.exp()))
    return LayerPredictions(*(torch.stack(column).cpu() for column in zip(*rows, strict=True)))
