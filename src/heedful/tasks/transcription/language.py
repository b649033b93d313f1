"""A language model for the search of transcriptions."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from heedful.basics.errors import UserError
from heedful.basics.notices import notice
from heedful.basics.symbols import END, UNKNOWN
from heedful.data.listed_vocabularies import ListedVocabulary
from heedful.decoding import Decodable, ShallowFusion
from heedful.inference.generator import Generator
from heedful.tasks.transcription.subwords import Subwords


class Language(NamedTuple):
    """A language model, and how it reads the tokens of a transcription."""

    model: Any
    tokens: Tensor
    """The language model's token for each token of the transcription."""
    weight: float

    @classmethod
    def of(
        cls,
        generator: Generator,
        own: ListedVocabulary | Subwords,
        weight: float,
        device: torch.device,
    ) -> "Language":
        """The language model of a run.

        Args:
            generator: the run's predictor.
            own: the vocabulary of the transcriptions.
            weight: the exponent of its probabilities.
            device: of the transcriptions' model.

        Raises:
            UserError: its vocabulary has other units.
        """
        theirs: Any = generator.vocabulary
        generator.model.eval()
        model = generator.model.to(device)
        if isinstance(own, Subwords):
            if getattr(getattr(theirs, "tokeniser", None), "model", None) != own.tokeniser.model:
                raise UserError(
                    "the language model must have the same subwords: train it on the same texts, "
                    "in the same case, with the same [tokeniser]"
                )
            return cls(model, torch.arange(own.size, device=device), weight)
        if getattr(theirs, "kind", None) != own.kind:
            raise UserError(
                f"the language model must predict {own.noun}: train it with tokeniser.kind = "
                f"'{own.kind}'"
            )
        found = [END if token == END else UNKNOWN for token in range(own.size)]
        first = own.size - len(own.entries)
        for place, entry in enumerate(own.entries):
            [found[first + place]] = theirs.encode(entry)
        unknown = sum(token == UNKNOWN for token in found[first:])
        if unknown:
            notice(
                f"the language model does not know {unknown:,} of {len(own.entries):,} {own.noun}"
            )
        return cls(model, torch.tensor(found, device=device), weight)

    def fused(self, model: Decodable[Any, Any]) -> ShallowFusion[Any]:
        """A model with this language model."""
        return ShallowFusion(model, self.model, self.tokens, self.weight)
