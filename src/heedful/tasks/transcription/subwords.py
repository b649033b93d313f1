"""Subwords as units of transcriptions."""

import base64
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any, Literal, Self

from pydantic import Field

from heedful.basics.limits import MOST_SYMBOLS
from heedful.basics.settings import Settings, check
from heedful.data import vocabularies
from heedful.data.tokeniser import Tokeniser, TokeniserSettings


class SubwordSettings(Settings):
    """The table ``[tokeniser]``: subwords of the training texts instead of ``data.units``."""

    kind: Literal["bpe", "unigram"] = "bpe"
    """Merges of frequent pairs (Sennrich et al. 2016), or the most probable segmentation (Kudo
    2018)."""
    vocabulary_size: int = Field(1000, ge=325, le=MOST_SYMBOLS)
    """Number of symbols, including 324 fixed ones."""


class Subwords(vocabularies.Subwords):
    """A vocabulary of subwords. Texts are composed (NFC) and, if set, in lower case.

    Characters that the training texts do not have are written with the tokens of their bytes.
    """

    noun = "subwords"

    @classmethod
    def train(
        cls,
        texts: Iterable[str],
        settings: SubwordSettings,
        *,
        lower_case: bool,
        seed: int,
        where: str,
    ) -> Self:
        """Subwords of texts.

        Raises:
            UserError: there are no texts, or too few or too many for a vocabulary of this size.
        """
        made = TokeniserSettings(**settings.model_dump(), normalise="nfc")
        cut = (text.lower() if lower_case else text for text in texts)
        return cls(Tokeniser.train(cut, made, seed=seed, where=where), lower_case)

    @classmethod
    def of(cls, kept: Mapping[str, Any], *, lower_case: bool) -> Self:
        """Undo :meth:`kept`.

        Raises:
            UserError: the data are damaged.
        """
        settings = check(TokeniserSettings, kept["settings"], "run.json", written=True)
        return cls(Tokeniser(base64.b64decode(kept["model"]), settings, "run.json"), lower_case)

    def kept(self) -> dict[str, Any]:
        """Everything that affects encoding, but for the case, as values that JSON can represent."""
        model = base64.b64encode(self.tokeniser.model).decode()
        return {"settings": self.tokeniser.settings.model_dump(), "model": model}

    def ready(self, text: str) -> str:
        """The preprocessed text."""
        text = unicodedata.normalize("NFC", text)
        return text.lower() if self.lower_case else text
