"""The result of a translation: text, score, tokens, word alignment, alternatives."""

from dataclasses import dataclass
from typing import Any

import torch

from heedful.basics.errors import UserError
from heedful.data.memory import Match
from heedful.inference.axes import Axis
from heedful.inference.trace import Trace
from heedful.inference.word_alignment import WordAlignment


@dataclass(frozen=True)
class Translation:
    """One text and its translation."""

    source: str
    text: str
    score: float = 0.0
    """Log-probability divided by the length penalty."""
    log_probability: float = 0.0
    """Natural logarithm of the tokens' probability, END included."""
    tokens: tuple[str, ...] = ()
    """The generated tokens."""
    token_scores: tuple[float, ...] = ()
    """Natural logarithm of each token's probability."""
    alignment: WordAlignment | None = None
    """The word alignment of this text (not of the alternatives), if requested."""
    alternatives: tuple["Translation", ...] = ()
    """The other hypotheses, best first."""
    parts: int = 1
    """Number of parts in which the text was translated; above 1 if it exceeds the model's limit."""
    at_limit: bool = False
    """Whether the translation was ended by the maximum length."""
    match: Match | None = None
    """The match in the translation memory, if the translation was taken from it."""

    def trace(self) -> Trace:
        """Its word alignment as a trace: axes of words, one map from target to source.

        Raises:
            UserError: it was made without an alignment, or is empty.
        """
        if self.alignment is None:
            raise UserError("no alignment to show; translate with alignments=True")
        source, target = self.source.split(), self.text.split()
        if not source or not target:
            raise UserError("no alignment to show: the text or its translation is empty")
        soft = torch.zeros(len(target), len(source))
        found = self.alignment.soft
        soft[: found.shape[0], : found.shape[1]] = found
        return Trace.of(
            {"source": source, "target": Axis("tokens", target, steps=True)},
            {"word alignment": ("target", "source", soft.unsqueeze(0))},
            title=self.source,
        )

    def to_json(self) -> dict[str, Any]:
        """A JSON object; its fields are described in docs/translating.md."""
        found: dict[str, Any] = {"source": self.source, **self._own()}
        if self.alignment is not None:
            found["alignment"] = [list(link) for link in self.alignment.links]
        found["alternatives"] = [one._own() for one in self.alternatives]
        if self.match is not None:
            found["memory"] = self.match.to_json()
        return found

    def _own(self) -> dict[str, Any]:
        return {
            "text": self.text,
            "score": self.score,
            "log_probability": self.log_probability,
            "tokens": list(self.tokens),
            "token_scores": list(self.token_scores),
        }
