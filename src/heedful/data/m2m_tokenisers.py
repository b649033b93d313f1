"""Tokenisers of M2M-100: one sentencepiece model, and a vocabulary with the ids of its pieces.

Pieces that are not in the vocabulary are unknown. The rows of the languages' tokens follow those of
the vocabulary, in an order that the files do not contain. Each text begins with the token of its
language. The names of special symbols (``</s>``, ``__de__``) in a text are ordinary text.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heedful.basics.errors import UserError
from heedful.data.added_tokens import refuse_unknown_tokens
from heedful.data.fixed_symbols import digest
from heedful.data.imported_vocabulary import count_rows
from heedful.data.language_tokens import M2M100, WMT21, Languages, language_token
from heedful.data.marian_tokenisers import MarianSide, rows_in
from heedful.data.tokeniser import INDEX, Tokenisers
from heedful.data.tokeniser_files import read_kept, read_tokeniser_settings, write_kept

KIND = "m2m-100"
MODEL = "sentencepiece.bpe.model"
FILES = (
    MODEL,
    "vocab.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
)
"""Files of tokenisers that are kept if they exist."""


class M2MSide(MarianSide):
    """The tokeniser of one side: the token of its language is before each text.

    Args:
        files: the content of the files.
        special: the rows of PAD, UNKNOWN, BEGIN and END.
        count: number of rows of the table.
        language: of the texts.
        where: the folder, for messages.

    Raises:
        UserError: a file is missing or damaged, or the model does not have the language.
    """

    def __init__(
        self,
        files: Mapping[str, bytes],
        special: Sequence[int | None],
        count: int,
        language: str,
        where: str,
    ) -> None:
        rows = rows_in(files, "vocab.json", where)
        languages = language_rows(files, where)
        language_token(language, languages, where)
        names = {f"__{one}__": row for one, row in languages.items()}
        if MODEL not in files:
            raise UserError(f"{where} has no {MODEL}; M2M-100 has it and vocab.json")
        self._name = f"__{language}__"
        super().__init__(
            files[MODEL],
            rows | names,
            special,
            count,
            joint=True,
            where=f"{where}/{MODEL}",
            silent=names,
        )
        self.first = self._symbols[self._name]

    def _language_code(self, text: str) -> tuple[list[str], str]:
        return [self._name], text

    def fingerprint(self) -> str:
        """A hash of everything that affects encoding; equal hashes give equal tokens."""
        return digest([KIND, super().fingerprint(), self._name])


@dataclass(frozen=True)
class M2MTokenisers(Tokenisers):
    """The tokenisers of both sides, with the content of their files."""

    source: M2MSide
    target: M2MSide
    files: dict[str, bytes]
    languages: Languages

    @classmethod
    def read(
        cls,
        files: Mapping[str, bytes],
        special: Sequence[int | None],
        count: int,
        languages: Languages,
        where: str,
    ) -> "M2MTokenisers":
        """Create the tokenisers from the content of files; arguments as for `M2MSide`."""
        sides = [M2MSide(files, special, count, language, where) for language in languages]
        return cls(sides[0], sides[1], dict(files), languages)

    def save(self, folder: Path) -> None:
        """Write the unchanged files into ``folder``, and the index last."""
        index = {
            "format": 1,
            "kind": KIND,
            "special": list(self.source.special),
            "rows": count_rows(self.source.places),
            "languages": list(self.languages),
        }
        write_kept(folder, self.files, INDEX, index)

    def fingerprint(self) -> str:
        """A hash of everything that affects encoding; equal hashes give equal tokens."""
        return digest([self.source.fingerprint(), self.target.fingerprint()])


def load_m2m(folder: Path, index: dict[str, Any]) -> M2MTokenisers:
    """Load what `M2MTokenisers.save` wrote.

    Raises:
        UserError: a file is missing, damaged, or has changed since it was saved.
    """
    special, rows, names = (index.get(name) for name in ("special", "rows", "languages"))
    two = isinstance(names, list) and [type(name) for name in names] == [str, str]
    if not isinstance(special, list) or type(rows) is not int or not names or not two:
        raise UserError(f"{folder / INDEX}: not an index of tokenisers; the file is damaged")
    files = read_kept(folder, index, INDEX, FILES)
    return M2MTokenisers.read(files, special, rows, Languages(*names), str(folder))


def language_rows(files: Mapping[str, bytes], where: str) -> dict[str, int]:
    """The rows of the tokens of all languages, by the languages.

    Raises:
        UserError: a file is missing or damaged, or the kind of language codes is unknown.
    """
    kind = read_tokeniser_settings(files, where).get("language_codes", "m2m100")
    known = {"m2m100": M2M100, "wmt21": WMT21}
    if not isinstance(kind, str) or kind not in known:
        raise UserError(
            f"{where}/tokenizer_config.json: language_codes = {kind!r:.40}: supported are m2m100 "
            "and wmt21"
        )
    first = len(rows_in(files, "vocab.json", where))
    return {name: first + number for number, name in enumerate(known[kind])}


def find_m2m_special(
    files: Mapping[str, bytes], config: Mapping[str, Any], where: str
) -> list[int | None]:
    """The rows of PAD, UNKNOWN, BEGIN and END.

    A target begins with the end symbol, so that BEGIN has no row of its own.

    Raises:
        UserError: the configuration contradicts the vocabulary, a symbol is missing, or tokens are
            added to the vocabulary.
    """
    settings = read_tokeniser_settings(files, where)
    rows = rows_in(files, "vocab.json", where)
    languages = {f"__{one}__" for one in language_rows(files, where)}
    refuse_unknown_tokens(files, settings, rows.keys() | languages, where)
    named = {"pad": "<pad>", "unk": "<unk>", "eos": "</s>"}
    pad, unknown, end = (
        rows.get(settings.get(f"{role}_token", usual)) for role, usual in named.items()
    )
    given = (config.get("pad_token_id", 1), config.get("eos_token_id", 2))
    if given != (pad, end) or None in (pad, unknown, end):
        raise UserError(
            f"{where}: pad_token_id = {given[0]} and eos_token_id = {given[1]} must be in "
            f"vocab.json as tokenizer_config.json names them; there <pad> is {pad}, <unk> is "
            f"{unknown} and </s> is {end}"
        )
    start = config.get("decoder_start_token_id", end)
    if start in (pad, unknown) or type(start) is not int or start < 0:
        raise UserError(
            f"{where}/config.json: decoder_start_token_id = {start}: expected the end symbol"
        )
    return [pad, unknown, None if start == end else start, end]
