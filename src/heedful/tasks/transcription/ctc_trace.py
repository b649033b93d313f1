"""CTC in a trace: where each token of a text is, and how probable it is.

Shapes: L tokens, S positions, V symbols.
"""

import itertools
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from heedful.basics.notices import notice
from heedful.basics.symbols import BEGIN, END
from heedful.decoding.ctc import occupation, positions_needed
from heedful.decoding.joint_ctc import CtcPrefixes, Emissions
from heedful.inference import AttentionMap
from heedful.models.speech import BLANK


def ctc_map(emissions: Tensor, tokens: Sequence[int]) -> list[AttentionMap]:
    """A map of the axis "target" over "time": the probability, given the text, that a position is
    the token's (:func:`heedful.decoding.ctc.occupation`); in the last row, that of END, that it is
    after the text. Blanks between tokens have no row.

    Args:
        emissions: logarithms of probabilities ``[S, V]``.
        tokens: the text.

    Returns:
        The map; nothing, and a notice, if CTC has no path with this text.
    """
    if positions_needed(tokens) > len(emissions):
        notice("the trace has no map of CTC: the recording is too short for a path with this text")
        return []
    states = occupation(emissions, tokens, BLANK)
    rows = torch.cat([states[1::2], states[-1:]]).float()
    return [AttentionMap("ctc", "target", "time", rows[None], "posterior")]


def token_log_probabilities(emissions: Tensor, tokens: Sequence[int]) -> Tensor:
    """Logarithms of the probabilities of the tokens and END, each given those before ``[L + 1]``.

    Their sum is the log-probability of the text, and has its gradient.

    Args:
        emissions: logarithms of probabilities ``[S, V]``.
        tokens: a text that CTC has a path for.
    """
    text = [BEGIN, *tokens, END]
    prefixes, found = CtcPrefixes(BLANK), []
    state = prefixes.start(Emissions(emissions.detach()[None], torch.tensor([len(emissions)])))
    for before, after in itertools.pairwise(text):
        logits, state = prefixes.step(torch.tensor([before]), state)
        found.append(logits[0, after])
    given = torch.tensor([tokens], dtype=torch.long)
    lengths, counts = torch.tensor([len(emissions)]), torch.tensor([len(tokens)])
    loss = F.ctc_loss(emissions[:, None], given, lengths, counts, BLANK, "sum")
    return torch.stack(found).float() + (loss.detach() - loss) / len(found)
