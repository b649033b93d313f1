"""Beam search over many sources at once, without a loop over beams.

At each step a source keeps its ``beam`` most probable hypotheses, including finished ones. A
finished hypothesis keeps its place in the beam, so that beam 1 is greedy search and the work
shrinks as hypotheses end. A source leaves when no live hypothesis can still enter its best
``nbest`` (see ``Beams._decided``), or none is live. Sources may enter at any step: each counts its
own steps.

Shapes: A active sources, K beam, N live rows (at most A · K), V vocabulary, C candidates per row.
Every ``[A, K]`` tensor has a place for each hypothesis; unused places are −inf.
"""

import torch
from torch import Tensor

from heedful.basics.symbols import BEGIN, END
from heedful.decoding.beam_tree import BeamTree
from heedful.decoding.hypothesis import Hypothesis, length_penalty
from heedful.decoding.options import SearchOptions
from heedful.decoding.search_loop import Finished
from heedful.kernels.topk import best

_NEVER = -torch.inf


class Beams:
    """The live and finished hypotheses of all active sources, with their histories.

    Args:
        options: search settings.
        device: the device of the decodable's logits.
    """

    def __init__(self, options: SearchOptions, device: torch.device) -> None:
        self.options, self.count = options, 0
        whole = torch.zeros(0, dtype=torch.long, device=device)
        self.tokens = whole  # [N]: last token of each live row
        self.sources = self.limits = self.ages = whole  # [A]; ages in steps
        self.live = torch.zeros(0, options.beam, device=device)  # log-probabilities
        self.nodes = torch.zeros(0, options.beam, dtype=torch.long, device=device)  # last choices
        # The finished hypotheses: [A, K + 1]; the last place is for discarded ones.
        self.scores = torch.zeros(0, options.beam + 1, device=device)
        self.ends = torch.zeros(0, options.beam + 1, dtype=torch.long, device=device)
        self.counts = whole.unsqueeze(1)  # [A, 1]
        self.penalties = self.live.new_zeros(0)  # by length
        self.choices = BeamTree()

    def add(self, max_lengths: Tensor) -> None:
        """Add sources; their rows come after those of the others."""
        self.choices.keep(int(self.ages.max()) if len(self.ages) else 0)
        width, count, forced = self.options.beam, len(max_lengths), self.options.forced_length
        limits = max_lengths if forced is None else torch.full_like(max_lengths, forced)
        longest = int(limits.max())
        if longest >= len(self.penalties):
            exponent = self.options.length_penalty
            known = [length_penalty(float(length), exponent) for length in range(longest + 1)]
            self.penalties = self.live.new_tensor(known)
        numbers = torch.arange(self.count, self.count + count, device=limits.device)
        self.count += count
        first = torch.zeros(count, 1, device=limits.device)
        self.tokens = _with(self.tokens, torch.full_like(numbers, BEGIN))
        self.sources = _with(self.sources, numbers)
        self.limits = _with(self.limits, limits.long())
        self.ages = _with(self.ages, torch.zeros_like(numbers))
        self.live = _with(self.live, torch.cat([first, _none(first, width - 1)], dim=1))
        self.nodes = _with(self.nodes, numbers.new_full((count, width), -1))
        self.scores = _with(self.scores, _none(first, width + 1))
        self.ends = _with(self.ends, numbers.new_full((count, width + 1), -1))
        self.counts = _with(self.counts, torch.zeros_like(numbers).unsqueeze(1))

    def advance(self, logits: Tensor) -> tuple[Tensor | None, list[Finished]]:
        """Extend every live hypothesis, given ``logits [N, V]``.

        Returns the remaining rows in their new order, or None if nothing changed; and the results
        of the sources that have left.
        """
        self.ages = self.ages + 1
        used = self.live > _NEVER  # [A, K]
        steps, tokens = self._candidates(logits, used)  # both [N, C]
        best, index = self._choose(steps, used)  # both [A, K]
        place, choice = index // steps.shape[1], index % steps.shape[1]
        row = (used.flatten().cumsum(0) - 1).view_as(self.live).gather(1, place).clamp(min=0)
        nodes = torch.arange(best.numel(), device=best.device).view_as(best) + self.choices.size
        chosen, taken = tokens[row, choice], steps[row, choice]
        parents = self.nodes.gather(1, place)
        self.choices.add(parents.flatten(), chosen.flatten(), taken.flatten())
        ended = best > _NEVER
        if self.options.forced_length is None:
            ended &= choice == 0
        else:
            ended &= (self.ages == self.limits).unsqueeze(1)
        self._keep(ended, best, nodes)
        self.live, self.nodes = best.masked_fill(ended, _NEVER), nodes
        decided = self._decided()
        finished: list[Finished] = []
        if decided.any():
            finished = self._found(decided)
            kept = self._leave(decided)
            row, chosen = row[kept], chosen[kept]
        living = self.live > _NEVER
        selected = row[living]
        self.tokens = chosen[living]
        same = len(selected) == len(steps)
        if same and torch.equal(selected, torch.arange(len(steps), device=row.device)):
            return None, finished
        return selected, finished

    def drop(self, numbers: list[int]) -> Tensor:
        """Remove sources; returns the remaining rows."""
        gone = torch.isin(self.sources, self.sources.new_tensor(numbers))
        rows = (self.live > _NEVER).sum(1)  # number per source; rows are ordered by source
        stay = (~gone).repeat_interleave(rows).nonzero().squeeze(1)
        self._leave(gone)
        self.tokens = self.tokens[stay]
        return stay

    def _candidates(self, logits: Tensor, used: Tensor) -> tuple[Tensor, Tensor]:
        """Log-probabilities and tokens ``[N, C]`` of END and the most probable other tokens."""
        first = END + 1
        count = min(self.options.beam, logits.shape[1] - first)
        found, others, total = best(logits, count, first)
        values = total.log_probabilities(found)
        end = total.log_probabilities(logits[:, END:first])
        if self.options.forced_length is None:
            last = (self.limits == self.ages).unsqueeze(1).expand_as(used)[used]  # [N]
            values = values.masked_fill(last.unsqueeze(1), _NEVER)
        else:
            end = torch.full_like(end, _NEVER)
        tokens = torch.cat([torch.full_like(others[:, :1], END), others], dim=1)
        return torch.cat([end, values], dim=1), tokens

    def _choose(self, steps: Tensor, used: Tensor) -> tuple[Tensor, Tensor]:
        """The best candidates ``[A, K]`` of each source, as many as its beam has free places."""
        width = self.live.shape[1]
        places = self.live.new_full((*self.live.shape, steps.shape[1]), _NEVER)  # [A, K, C]
        places[used] = steps + self.live[used].unsqueeze(1)
        best, index = places.flatten(1).topk(width, dim=1)
        full = torch.arange(width, device=best.device) >= width - self.counts
        return best.masked_fill(full | best.isnan(), _NEVER), index

    def _keep(self, ended: Tensor, best: Tensor, nodes: Tensor) -> None:
        """Store the hypotheses that have ended at this step."""
        width = self.live.shape[1]
        place = torch.where(ended, self.counts + ended.cumsum(1) - 1, width)
        penalty = self.penalties[self.ages].unsqueeze(1)
        self.scores.scatter_(1, place, (best / penalty).masked_fill(~ended, _NEVER))
        self.ends.scatter_(1, place, nodes)
        self.counts = self.counts + ended.sum(1, keepdim=True)

    def _decided(self) -> Tensor:
        """Sources ``[A]`` whose best ``nbest`` hypotheses can no longer change.

        The log-probability of a live hypothesis can only fall, and the penalty grows with the
        length; its score is therefore at most its current log-probability divided by the penalty of
        the longest length. If this bound is not above the n-th best score of the finished
        hypotheses, no live one can enter.
        """
        attainable = self.live.amax(1) / self.penalties[self.limits]
        worst = self.scores[:, :-1].topk(self.options.nbest, dim=1).values[:, -1]
        return attainable <= worst

    def _leave(self, gone: Tensor) -> Tensor:
        """Remove sources; returns the indices ``[A']`` of the remaining ones."""
        kept = (~gone).nonzero().squeeze(1)
        self.sources, self.limits, self.ages, self.counts = (
            part[kept] for part in (self.sources, self.limits, self.ages, self.counts)
        )
        self.live, self.nodes = self.live[kept], self.nodes[kept]
        self.scores, self.ends = self.scores[kept], self.ends[kept]
        return kept

    def _found(self, decided: Tensor) -> list[Finished]:
        """The hypotheses of decided sources, best first."""
        parts = self.sources[decided], self.scores[decided], self.ends[decided]
        found: list[Finished] = []
        for source, scores, ends in zip(*(part.tolist() for part in parts), strict=True):
            ended = [pair for pair in zip(scores[:-1], ends[:-1], strict=True) if pair[0] > _NEVER]
            best = sorted(ended, key=lambda pair: -pair[0])[: self.options.nbest]
            if not best:
                raise ValueError("search found nothing: the model's probabilities are not finite")
            hypotheses = [self._read(node) for _, node in best]
            found.append((source, sorted(hypotheses, key=lambda one: -one.score)))
        return found

    def _read(self, node: int) -> Hypothesis:
        """The hypothesis that ends at ``node``."""
        tokens, values = self.choices.path(node)
        if self.options.forced_length is None:
            tokens.pop()
        return Hypothesis.finished(tokens, values, self.options.length_penalty)


def _with(there: Tensor, further: Tensor) -> Tensor:
    return torch.cat([there, further])


def _none(like: Tensor, width: int) -> Tensor:
    return like.new_full((len(like), width), _NEVER)
