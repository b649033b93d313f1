"""CTC in the search of a decoder: a decodable that scores each next symbol by both.

    log p(c | g) = λ log p_ctc(c | g) + (1 − λ) log p_decoder(c | g)

p_ctc(c | g) = p_ctc(g · c …) / p_ctc(g …), where p_ctc(g …) is the probability of all outputs that
begin with g, and p_ctc(END | g) = p_ctc(g) / p_ctc(g …). The sum over a text is therefore
λ log p_ctc(text) + (1 − λ) log p_decoder(text).

Watanabe et al. 2017, "Hybrid CTC/Attention Architecture for End-to-End Speech Recognition", section
IV.C, one-pass decoding, and algorithm 2; the probabilities of prefixes: Graves 2012, "Supervised
Sequence Labelling with Recurrent Neural Networks", section 7.5.1.
Shapes: B sources, N rows, S positions, V symbols.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Generic, NamedTuple, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from heedful.basics.symbols import BEGIN, END
from heedful.decoding.decodable import Decodable, SourceT_contra, State

_NEVER = -torch.inf
_LEAST = -1e30


class Emissions(NamedTuple):
    """The output of CTC for some sources."""

    likely: Tensor
    """Logarithms of probabilities ``[B, S, V]``, padded."""
    lengths: Tensor
    """Positions of each source ``[B]``, each at least 1."""


@dataclass(frozen=True)
class _Heard:
    """Emissions in float64."""

    likely: Tensor
    chances: Tensor
    """Probabilities; 0 after the end of a source."""
    inside: Tensor
    """0 at each position of a source and −inf after its end, ``[B, S]``."""
    lengths: Tensor


@dataclass(frozen=True)
class PrefixState:
    """The paths of the prefix of each row, as logarithms of probabilities in float64.

    Place s of ``silent`` and ``symbol`` is after s positions.
    """

    heard: _Heard
    sources: Tensor
    """The source of each row ``[N]``."""
    silent: Tensor
    """Paths whose output is the prefix and that end with a blank, ``[N, S + 1]`` (γ_b)."""
    symbol: Tensor
    """Paths whose output is the prefix and that end with its last symbol, ``[N, S + 1]`` (γ_n)."""
    last: Tensor
    """The last symbol of each prefix ``[N]``; the blank for an empty one."""
    whole: Tensor
    """All outputs that begin with the prefix ``[N]``."""

    def select(self, rows: Tensor) -> Self:
        """The state of ``rows [M]``, in this order."""
        return replace(
            self,
            sources=self.sources[rows],
            silent=self.silent[rows],
            symbol=self.symbol[rows],
            last=self.last[rows],
            whole=self.whole[rows],
        )


class CtcPrefixes:
    """CTC as a decodable: its logits are logarithms of the probabilities of the next symbol.

    The probability of symbols that no text has (UNKNOWN, BEGIN, and END at a position) is at the
    blank, which a search never chooses.

    Args:
        blank: the symbol of no output, below BEGIN.

    Example:
        >>> likely = torch.tensor([0.6, 0, 0, 0, 0.4]).log().clamp(min=-40).expand(1, 2, 5)
        >>> prefixes = CtcPrefixes(blank=0)
        >>> state = prefixes.start(Emissions(likely, torch.tensor([2])))
        >>> logits, state = prefixes.step(torch.tensor([2]), state)
        >>> logits[0, 3:].exp()  # END: 0.6 · 0.6; then the rest
        tensor([0.3600, 0.6400], dtype=torch.float64)
    """

    def __init__(self, blank: int) -> None:
        self.blank = blank

    def start(self, source: Emissions) -> PrefixState:
        """The state of empty prefixes, one row per source."""
        likely, lengths = source.likely.double(), source.lengths
        after = torch.arange(likely.shape[1], device=likely.device) >= lengths[:, None]
        inside = likely.new_zeros(after.shape).masked_fill(after, _NEVER)
        heard = _Heard(likely, (likely + inside[..., None]).exp(), inside, lengths)
        silent = F.pad(likely[..., self.blank].cumsum(1), (1, 0))
        return PrefixState(
            heard,
            torch.arange(len(likely), device=likely.device),
            silent,
            torch.full_like(silent, _NEVER),
            torch.full_like(lengths, self.blank),
            likely.new_zeros(len(likely)),
        )

    def step(self, tokens: Tensor, state: PrefixState) -> tuple[Tensor, PrefixState]:
        """Logarithms ``[N, V]`` of the probabilities after ``tokens [N]``; and the new states."""
        if bool((tokens != BEGIN).any()):
            state = self._with(tokens, state)
        return self._next(state), state

    def _with(self, tokens: Tensor, state: PrefixState) -> PrefixState:
        """The state of prefixes with one more symbol c:

            γ_n(s) = (γ_n(s − 1) + φ(s − 1)) p_s(c)
            γ_b(s) = (γ_b(s − 1) + γ_n(s − 1)) p_s(blank)

        φ are the paths that c may follow.
        """
        heard, sources = state.heard, state.sources
        own, silence = (heard.likely[sources, :, of] for of in (tokens, self.blank))
        before = _before(state, tokens)
        symbol = _carried(before, own)
        silent = _carried(F.pad(symbol[:, :-1], (1, 0), value=_NEVER), silence)
        return replace(
            state,
            silent=F.pad(silent, (1, 0), value=_NEVER),
            symbol=F.pad(symbol, (1, 0), value=_NEVER),
            last=tokens,
            whole=(before + own + heard.inside[sources]).logsumexp(1),
        )

    def _next(self, state: PrefixState) -> Tensor:
        heard, sources, last = state.heard, state.sources, state.last
        total = torch.logaddexp(state.silent, state.symbol)  # [N, S + 1]
        scores = _sums(total[:, :-1], heard.chances, sources)
        # The last symbol again needs a blank before it.
        again = _before(state, last) + heard.likely[sources, :, last] + heard.inside[sources]
        scores = scores.scatter(1, last[:, None], again.logsumexp(1, keepdim=True))
        scores[:, :END] = _NEVER
        scores[:, END] = total.gather(1, heard.lengths[sources, None]).squeeze(1)
        return _with_rest(scores - state.whole.clamp(min=_LEAST)[:, None], self.blank)


def _before(state: PrefixState, tokens: Tensor) -> Tensor:
    """φ ``[N, S]``: the paths, before each position, that a symbol may follow; the last symbol
    follows a blank."""
    repeated = (tokens == state.last)[:, None]
    return torch.logaddexp(state.silent, state.symbol.masked_fill(repeated, _NEVER))[:, :-1]


def _carried(begun: Tensor, kept: Tensor) -> Tensor:
    """x of x_s = log(exp(x_{s − 1}) + exp(begun_s)) + kept_s, all ``[N, S]``."""
    product = kept.cumsum(1)
    return product + (begun + kept - product).logcumsumexp(1)


def _sums(before: Tensor, chances: Tensor, sources: Tensor) -> Tensor:
    """log Σ_s exp(before_s) chances_s, ``[N, V]``.

    Args:
        before: ``[N, S]``.
        chances: ``[B, S, V]``.
        sources: ``[N]``.
    """
    largest = before.amax(1, keepdim=True).clamp(min=_LEAST)
    weights = (before - largest).exp()
    found = weights.new_empty(len(weights), chances.shape[2])
    for source in sources.unique().tolist():
        own = sources == source
        found[own] = weights[own] @ chances[source]
    return found.log() + largest


def _with_rest(scores: Tensor, column: int) -> Tensor:
    """Logarithms of probabilities ``[N, V]`` whose sum is at most 1, with the rest in a column."""
    scores[:, column] = _NEVER
    scores[:, column] = torch.log1p(-scores.logsumexp(1).exp().clamp(max=1))
    return scores


@dataclass(frozen=True)
class JointState:
    """The states of a decoder and of CTC."""

    model: State
    prefixes: PrefixState

    def select(self, rows: Tensor) -> Self:
        """The state of ``rows [M]``, in this order."""
        return type(self)(self.model.select(rows), self.prefixes.select(rows))


class JointCtc(Generic[SourceT_contra]):
    """A decoder and CTC, searched as one.

    The products of the two probabilities are not normalized. What they lack of 1 (they never have
    more, by Hölder's inequality) is at the blank, which a search never chooses.

    Args:
        model: the decoder.
        emissions: the output of CTC for the sources of the decoder.
        weight: λ, from 0 to 1.
        blank: the symbol of no output.

    Raises:
        ValueError: the weight is out of range.
    """

    def __init__(
        self,
        model: Decodable[SourceT_contra, Any],
        emissions: Callable[[SourceT_contra], Emissions],
        weight: float,
        blank: int,
    ) -> None:
        if not 0 <= weight <= 1:
            raise ValueError(f"the weight of CTC must be from 0 to 1, not {weight}")
        self.model, self.emissions, self.weight = model, emissions, weight
        self.prefixes = CtcPrefixes(blank)

    def start(self, source: SourceT_contra) -> JointState:
        """The state before the first step."""
        begun = self.prefixes.start(self.emissions(source))
        return JointState(self.model.start(source), begun)

    def step(self, tokens: Tensor, state: JointState) -> tuple[Tensor, JointState]:
        """Logarithms ``[N, V]`` of the products, and the new states."""
        logits, model = self.model.step(tokens, state.model)
        heard, prefixes = self.prefixes.step(tokens, state.prefixes)
        decoded = logits.double().log_softmax(1)
        # 0 · −inf would not be a number.
        parts = [
            own * part for own, part in ((self.weight, heard), (1 - self.weight, decoded)) if own
        ]
        joint = torch.stack(parts).sum(0)
        return _with_rest(joint, self.prefixes.blank), JointState(model, prefixes)
