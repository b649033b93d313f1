"""Tokenisers of imported encoder–decoders with one ``tokenizer.json``: T5, BART, Pegasus, NLLB-200.

Both sides have the same vocabulary. BART puts its symbol ``<s>`` before each text of both sides.
In NLLB-200 and mBART-50 each text begins with the token of its language.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heedful.basics.bounded_reading import parse_json
from heedful.basics.errors import UserError
from heedful.basics.symbols import BEGIN, END, UNKNOWN
from heedful.data.fixed_symbols import digest
from heedful.data.imported_vocabulary import ImportedVocabulary
from heedful.data.subwords import TokeniserSettings
from heedful.data.tokeniser import INDEX, Tokeniser, Tokenisers
from heedful.data.tokeniser_files import (
    FILES,
    read_kept,
    read_tokeniser_settings,
    read_tokenizer,
    write_kept,
)

KIND = "imported-pair"
_LANGUAGE = re.compile(r"[a-z]{2,3}_[A-Z][A-Za-z]{1,3}")
_STARTS = {"bart": 2, "m2m_100": 2, "mbart": None, "pegasus": 0}
"""``model_type`` → ``decoder_start_token_id`` in transformers if a file leaves it out."""
_LEAST = 325
"""The smallest vocabulary that a recipe accepts."""


class ImportedTokeniser(Tokeniser):
    """An imported vocabulary as the tokeniser of both sides of pairs.

    Args:
        vocabulary: the vocabulary.
        before: tokens that are put before each text.
        language: the token with which each text begins instead, and which an output must begin
            with: in models of many languages, that of the texts' language.
    """

    def __init__(
        self,
        vocabulary: ImportedVocabulary,
        before: Sequence[int] = (),
        language: int | None = None,
    ) -> None:
        self.vocabulary, self.first = vocabulary, language
        self.before = list(before) if language is None else [language]
        languages = () if language is None else language_tokens(vocabulary).values()
        self._silent = frozenset({*self.before, *languages})
        self.size, self.mask = vocabulary.size, None
        self.places = vocabulary.places
        self.settings = TokeniserSettings(
            kind="imported", vocabulary_size=max(self.size, _LEAST), joint=True
        )

    def encode(self, text: str) -> list[int]:
        """Encode ``text`` without BEGIN and END, but with the tokens before each text.

        Raises:
            UserError: the text contains a lone surrogate, which is not valid Unicode.
        """
        return self.before + self.vocabulary.encode(text)

    def encode_batch(self, texts: Sequence[str], threads: int | None = None) -> list[list[int]]:
        """Encode several texts; uses all threads unless ``threads`` is 1.

        Raises:
            UserError: a text contains a lone surrogate; the message names the text and the
                position.
        """
        return [self.before + tokens for tokens in self.vocabulary.encode_batch(texts, threads)]

    def decode(self, tokens: Sequence[int]) -> str:
        """Decode ``tokens``; PAD, BEGIN, END, languages and tokens before a text give no text."""
        silent = self._silent
        return self.vocabulary.decode([token for token in tokens if int(token) not in silent])

    def decode_batch(self, batch: Sequence[Sequence[int]]) -> list[str]:
        """Decode several sequences of tokens."""
        return [self.decode(tokens) for tokens in batch]

    def pieces(self, tokens: Sequence[int]) -> list[str]:
        """A readable form of each token."""
        return self.vocabulary.pieces(tokens)

    def word_starts(self) -> list[int]:
        """Tokens that begin with white space."""
        return self.vocabulary.word_starts()

    def word_indices(self, tokens: Sequence[int]) -> list[int]:
        """The index of each token's word in ``decode(tokens).split()``; -1 for no word."""
        kept = [place for place, token in enumerate(tokens) if int(token) not in self._silent]
        found = [-1] * len(tokens)
        words = self.vocabulary.word_indices([tokens[place] for place in kept])
        for place, word in zip(kept, words, strict=True):
            found[place] = word
        return found

    def scores(self) -> dict[str, tuple[int, float]]:
        """Not supported: words of an imported vocabulary cannot be segmented anew.

        Raises:
            UserError: always.
        """
        raise UserError(
            "training.subword_dropout and training.subword_alpha need a vocabulary that heedful "
            "has trained; leave them out for imported vocabularies"
        )

    def fingerprint(self) -> str:
        """A hash of everything that affects encoding; equal hashes give equal tokens."""
        return digest([KIND, self.vocabulary.fingerprint(), str(self.before)])

    def save(self, path: Path) -> None:
        """Not supported: `ImportedTokenisers.save` saves the files."""
        raise NotImplementedError


@dataclass(frozen=True)
class ImportedTokenisers(Tokenisers):
    """The tokenisers of both sides, with the content of their files.

    They are the same unless an output must begin with a token, such as that of its language.
    """

    source: ImportedTokeniser
    target: ImportedTokeniser

    @classmethod
    def of(cls, vocabulary: ImportedVocabulary, before: Sequence[int]) -> "ImportedTokenisers":
        """The tokenisers of a vocabulary and the tokens before each text."""
        both = ImportedTokeniser(vocabulary, before)
        return cls(both, both)

    @classmethod
    def between(
        cls, vocabulary: ImportedVocabulary, source: int, target: int
    ) -> "ImportedTokenisers":
        """The tokenisers of a vocabulary and the tokens that texts of both sides begin with, which
        are those of the languages in models of many languages."""
        sides = (ImportedTokeniser(vocabulary, language=one) for one in (source, target))
        return cls(*sides)

    @property
    def files(self) -> dict[str, bytes]:
        """The files of the tokeniser."""
        return self.source.vocabulary.files

    def save(self, folder: Path) -> None:
        """Write the unchanged files into ``folder``, and the index last."""
        vocabulary = self.source.vocabulary
        index = {
            "format": 1,
            "kind": KIND,
            "special": list(vocabulary.special),
            "rows": vocabulary.rows,
            "before": self.source.before,
            **({} if self.shared else {"languages": [self.source.first, self.target.first]}),
        }
        write_kept(folder, vocabulary.files, INDEX, index)

    def fingerprint(self) -> str:
        """A hash of everything that affects encoding; equal hashes give equal tokens."""
        own = self.source.fingerprint()
        return own if self.shared else digest([own, self.target.fingerprint()])


def load_imported(folder: Path, index: dict[str, Any]) -> ImportedTokenisers:
    """Load what `ImportedTokenisers.save` wrote.

    Raises:
        UserError: a file is missing, damaged, or has changed since it was saved.
    """
    special, rows, before = (index.get(name) for name in ("special", "rows", "before"))
    if not isinstance(special, list) or type(rows) is not int or not isinstance(before, list):
        raise UserError(f"{folder / INDEX}: not an index of tokenisers; the file is damaged")
    files = read_kept(folder, index, INDEX, FILES)
    vocabulary = ImportedVocabulary(files, special, rows, str(folder))
    languages = index.get("languages", [])
    pair = isinstance(languages, list) and len(languages) in (0, 2)
    if not pair or not all(
        type(token) is int and 0 <= token < vocabulary.size for token in (*before, *languages)
    ):
        raise UserError(f"{folder / INDEX}: not an index of tokenisers; the file is damaged")
    if languages:
        return ImportedTokenisers.between(vocabulary, *languages)
    return ImportedTokenisers.of(vocabulary, before)


def language_tokens(vocabulary: ImportedVocabulary) -> dict[str, int]:
    """The tokens that name languages, such as ``deu_Latn`` and ``de_DE``, by their names."""
    return {name: one for name, one in vocabulary.added().items() if _LANGUAGE.fullmatch(name)}


def find_pair_special(
    files: Mapping[str, bytes], config: Mapping[str, Any], where: str
) -> list[int | None]:
    """The rows of PAD, UNKNOWN, BEGIN and END.

    A target begins with ``decoder_start_token_id``. In T5 and Pegasus, this is also the padding
    symbol. It becomes BEGIN; then the model has no PAD, which is not needed. In BART it is the end
    symbol; then BEGIN has no row of its own.

    Raises:
        UserError: the configuration contradicts the tokeniser, or a symbol is missing.
    """
    end, pad = config.get("eos_token_id"), config.get("pad_token_id")
    start = config.get("decoder_start_token_id", _STARTS.get(str(config.get("model_type")), pad))
    named = {"eos_token_id": end, "pad_token_id": pad, "decoder_start_token_id": start}
    for name, row in named.items():
        if type(row) is not int or row < 0:
            raise UserError(f"{where}/config.json: {name} = {json.dumps(row)}: expected a number")
    settings = read_tokeniser_settings(files, where)
    tokenizer = read_tokenizer(files, where)
    unknown = tokenizer.token_to_id(settings.get("unk_token", "<unk>"))
    ends = tokenizer.token_to_id(settings.get("eos_token", "</s>"))
    if ends != end:
        raise UserError(
            f"{where}: eos_token_id = {end} must be the end symbol that tokenizer_config.json "
            f"names; there it is {ends}"
        )
    taken = {end, start}
    return [
        None if pad in taken else pad,
        None if unknown in taken | {pad} else unknown,
        None if start == end else start,
        end,
    ]


def tokens_before(
    files: Mapping[str, bytes], vocabulary: ImportedVocabulary, where: str
) -> list[int]:
    """The tokens that a ``tokenizer.json`` puts before each text; END alone may follow.

    Raises:
        UserError: its post-processor puts other tokens around a text.
    """
    step = _post_processor(files, where)
    rows = {place: symbol for symbol, place in enumerate(vocabulary.places) if place is not None}
    try:
        if step.get("type") in ("RobertaProcessing", "BertProcessing"):
            first, last = [step["cls"][1]], [step["sep"][1]]
        else:
            first, last = _template(step)
        before, after = [rows[row] for row in first], [rows[row] for row in last]
    except (AttributeError, KeyError, TypeError, ValueError, IndexError) as error:
        raise UserError(
            f"{where}/tokenizer.json: the post_processor is not one that heedful knows; "
            "TemplateProcessing and RobertaProcessing are supported"
        ) from error
    if after != [END] or any(token <= UNKNOWN or token == BEGIN for token in before):
        raise UserError(
            f"{where}/tokenizer.json: the post_processor puts other symbols around a text than "
            "<s> before it and the end symbol after it"
        )
    return before


def _post_processor(files: Mapping[str, bytes], where: str) -> dict[str, Any]:
    if "tokenizer.json" not in files:
        raise UserError(
            f"{where} has no tokenizer.json; AutoTokenizer.from_pretrained(…).save_pretrained(…) "
            "writes it"
        )
    values = parse_json(files["tokenizer.json"], f"{where}/tokenizer.json")
    step = values.get("post_processor") if isinstance(values, dict) else None
    return step if isinstance(step, dict) else {}


def _template(step: dict[str, Any]) -> tuple[list[int], list[int]]:
    """The rows of the symbols before and after a text in a template."""
    if step["type"] != "TemplateProcessing":
        raise ValueError
    names = ["" if "Sequence" in one else one["SpecialToken"]["id"] for one in step["single"]]
    text = names.index("")
    rows = {name: one["ids"] for name, one in step["special_tokens"].items()}
    return [row for name in names[:text] for row in rows[name]], [
        row for name in names[text + 1 :] for row in rows[name]
    ]
