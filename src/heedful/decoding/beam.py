"""Beam search over a batch of sources at once, without a loop over beams.

At each step a source keeps its ``beam`` most probable hypotheses, those that have ended included:
one that ends takes its place in the beam for good, so that beam 1 is greedy search and the work
shrinks as hypotheses end. A source leaves the batch when no live hypothesis can still enter its
best ``nbest`` (see ``_Beams._decided``), or none is live.

Shapes: A sources still searched, K beam, N live rows (at most A · K), V vocabulary, C candidates
a row. Every ``[A, K]`` tensor has a place for each hypothesis; places not in use hold −inf.
"""

import torch
from torch import Tensor

from heedful.basics.symbols import BEGIN, END
from heedful.decoding.decodable import Decodable, SelectableT, SourceT_contra
from heedful.decoding.hypothesis import Hypothesis, length_penalty
from heedful.decoding.options import SearchOptions
from heedful.decoding.top import best

_NEVER = -torch.inf


def beam_search(
    decodable: Decodable[SourceT_contra, SelectableT],
    source: SourceT_contra,
    *,
    options: SearchOptions,
    max_lengths: Tensor,
) -> list[list[Hypothesis]]:
    """The best ``options.nbest`` hypotheses of each source, best score first, all different.

    Raises:
        ValueError: the model's probabilities are not finite.
    """
    state = decodable.start(source)
    beams = _Beams(options, max_lengths)
    while True:
        logits, state = decodable.step(beams.tokens, state)
        selected = beams.advance(logits.float())
        if not len(beams.tokens):
            return beams.hypotheses()
        if selected is not None:
            state = state.select(selected)


class _Beams:
    """The hypotheses of all sources: those alive, those ended, and how each came about."""

    def __init__(self, options: SearchOptions, max_lengths: Tensor) -> None:
        rows, device = len(max_lengths), max_lengths.device
        self.options, self.rows, self.step = options, rows, 0
        forced = options.forced_length
        self.limits = max_lengths if forced is None else torch.full_like(max_lengths, forced)
        self.sources = torch.arange(rows, device=device)  # [A]
        self.tokens = torch.full((rows,), BEGIN, device=device)  # [N]: the last of each live row
        self.live = torch.full((rows, options.beam), _NEVER, device=device)  # log-probabilities
        self.live[:, 0] = 0.0
        self.nodes = torch.full((rows, options.beam), -1, device=device)  # where each came from
        # The ended ones: [A, K + 1], the last place takes what is not wanted.
        self.scores = torch.full((rows, options.beam + 1), _NEVER, device=device)
        self.ends = torch.full((rows, options.beam + 1), -1, device=device)
        self.counts = torch.zeros(rows, 1, dtype=torch.long, device=device)
        # A tree of all choices: parent node, token, log-probability of the token.
        self.tree: list[tuple[Tensor, Tensor, Tensor]] = []
        self.size = 0
        self.decided: list[tuple[Tensor, Tensor, Tensor]] = []

    def advance(self, logits: Tensor) -> Tensor | None:
        """Extend every live hypothesis, given ``logits [N, V]``.

        Returns the rows that live on, in their new order, or None if they are as they were.
        """
        self.step += 1
        used = self.live > _NEVER  # [A, K]
        steps, tokens = self._candidates(logits, used)  # both [N, C]
        best, index = self._choose(steps, used)  # both [A, K]
        place, choice = index // steps.shape[1], index % steps.shape[1]
        row = (used.flatten().cumsum(0) - 1).view_as(self.live).gather(1, place).clamp(min=0)
        nodes = torch.arange(best.numel(), device=best.device).view_as(best) + self.size
        chosen, taken = tokens[row, choice], steps[row, choice]
        self.tree.append((self.nodes.gather(1, place).flatten(), chosen.flatten(), taken.flatten()))
        self.size += best.numel()
        ended = best > _NEVER
        if self.options.forced_length is None:
            ended &= choice == 0
        elif self.step < self.options.forced_length:
            ended.zero_()
        self._keep(ended, best, nodes)
        self.live, self.nodes = best.masked_fill(ended, _NEVER), nodes
        kept = self._leave()
        living = self.live > _NEVER
        if kept is not None:
            row, chosen = row[kept], chosen[kept]
        selected = row[living]
        self.tokens = chosen[living]
        same = len(selected) == len(steps)
        if same and torch.equal(selected, torch.arange(len(steps), device=row.device)):
            return None
        return selected

    def _candidates(self, logits: Tensor, used: Tensor) -> tuple[Tensor, Tensor]:
        """Log-probabilities and tokens ``[N, C]`` of END, first, and the most probable others."""
        first = END + 1
        count = min(self.options.beam, logits.shape[1] - first)
        found, others, total = best(logits, count, first)
        values = total.log_probabilities(found)
        end = total.log_probabilities(logits[:, END:first])
        if self.options.forced_length is None:
            last = (self.limits == self.step).unsqueeze(1).expand_as(used)[used]  # [N]
            values = values.masked_fill(last.unsqueeze(1), _NEVER)
        else:
            end = torch.full_like(end, _NEVER)
        tokens = torch.cat([torch.full_like(others[:, :1], END), others], dim=1)
        return torch.cat([end, values], dim=1), tokens

    def _choose(self, steps: Tensor, used: Tensor) -> tuple[Tensor, Tensor]:
        """The best candidates ``[A, K]`` of each source, as many as its beam has places left."""
        width = self.live.shape[1]
        places = self.live.new_full((*self.live.shape, steps.shape[1]), _NEVER)  # [A, K, C]
        places[used] = steps + self.live[used].unsqueeze(1)
        best, index = places.flatten(1).topk(width, dim=1)
        full = torch.arange(width, device=best.device) >= width - self.counts
        return best.masked_fill(full | best.isnan(), _NEVER), index

    def _keep(self, ended: Tensor, best: Tensor, nodes: Tensor) -> None:
        """Put the hypotheses that ended at this step among the ended ones."""
        width = self.live.shape[1]
        place = torch.where(ended, self.counts + ended.cumsum(1) - 1, width)
        penalty = length_penalty(float(self.step), self.options.length_penalty)
        self.scores.scatter_(1, place, (best / penalty).masked_fill(~ended, _NEVER))
        self.ends.scatter_(1, place, nodes)
        self.counts = self.counts + ended.sum(1, keepdim=True)

    def _decided(self) -> Tensor:
        """Sources ``[A]`` whose best ``nbest`` can change no more.

        A live hypothesis can only lose log-probability, and the penalty grows with the length; so
        its score can never exceed its log-probability now over the penalty at the longest length.
        If that is no more than the n-th best score among the ended, nothing alive can enter.
        """
        penalty = length_penalty(self.limits.float(), self.options.length_penalty)
        attainable = self.live.amax(1) / penalty
        worst = self.scores[:, :-1].topk(self.options.nbest, dim=1).values[:, -1]
        return attainable <= worst

    def _leave(self) -> Tensor | None:
        """Take decided sources out; the places ``[A']`` that stay, or None if all do."""
        decided = self._decided()
        if not decided.any():
            return None
        self.decided.append((self.sources[decided], self.scores[decided], self.ends[decided]))
        kept = (~decided).nonzero().squeeze(1)
        self.sources, self.limits, self.counts = (
            part[kept] for part in (self.sources, self.limits, self.counts)
        )
        self.live, self.nodes = self.live[kept], self.nodes[kept]
        self.scores, self.ends = self.scores[kept], self.ends[kept]
        return kept

    def hypotheses(self) -> list[list[Hypothesis]]:
        """What was found for each source, read back through the tree."""
        parents, tokens, steps = (torch.cat(part).tolist() for part in zip(*self.tree, strict=True))
        found: list[list[Hypothesis]] = [[] for _ in range(self.rows)]
        for source, scores, ends in zip(
            *(torch.cat(part).tolist() for part in zip(*self.decided, strict=True)), strict=True
        ):
            ended = [pair for pair in zip(scores[:-1], ends[:-1], strict=True) if pair[0] > _NEVER]
            for _, node in sorted(ended, key=lambda pair: -pair[0])[: self.options.nbest]:
                found[source].append(self._read(node, parents, tokens, steps))
            if not found[source]:
                raise ValueError("search found nothing: the model's probabilities are not finite")
            found[source].sort(key=lambda one: -one.score)
        return found

    def _read(
        self, node: int, parents: list[int], tokens: list[int], steps: list[float]
    ) -> Hypothesis:
        """The hypothesis that ends at ``node`` of the tree."""
        path = []
        while node >= 0:
            path.append(node)
            node = parents[node]
        path.reverse()
        chosen = [tokens[node] for node in path]
        if self.options.forced_length is None:
            chosen.pop()
        values = [steps[node] for node in path]
        return Hypothesis.finished(chosen, values, self.options.length_penalty)
