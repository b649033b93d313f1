"""Reads the tokenisers of encoder–decoders: T5's, BART's, Pegasus', and those of many languages."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from heedful.basics.errors import UserError
from heedful.data.imported_tokenisers import (
    ImportedTokenisers,
    find_pair_special,
    language_tokens,
    tokens_before,
)
from heedful.data.imported_vocabulary import ImportedVocabulary
from heedful.data.language_tokens import Languages, language_token
from heedful.data.m2m_tokenisers import (
    FILES,
    M2MTokenisers,
    find_m2m_special,
    language_rows,
)
from heedful.data.tokeniser_files import read_files, read_tokeniser_settings
from heedful.interop.tokeniser_class import check_tokeniser
from heedful.interop.translators import FORCED, forced_error, read_generation

_PIECES = "M2M100Tokenizer"
"""The class with a sentencepiece model and a vocabulary of its own."""
_OF_LANGUAGES = (_PIECES, "NllbTokenizer", "MBart50Tokenizer")
"""Classes that put the token of the language before each text."""


class PairTokenisers(NamedTuple):
    """The tokenisers of a folder."""

    tokenisers: ImportedTokenisers | M2MTokenisers
    languages: Languages | None
    """The languages whose tokens are before each text; None if there are no such tokens."""


def read_pair_tokenisers(
    folder: Path,
    config: Mapping[str, Any],
    rows: int,
    source: str | None = None,
    target: str | None = None,
) -> PairTokenisers:
    """The tokenisers of a folder.

    Args:
        folder: contains the files.
        config: the content of ``config.json``.
        rows: number of rows of the model's table.
        source: the source language in a model of many languages.
        target: the target language, likewise.

    Raises:
        UserError: a file is missing or damaged, files contradict each other, the languages are
            missing, unknown, or given for a model without them, or outputs must begin with a token
            that is not before each text.
    """
    where = str(folder)
    files = read_files(folder, FILES)
    settings = read_tokeniser_settings(files, where)
    kind = config.get("model_type")
    named = settings.get("tokenizer_class") or config.get("tokenizer_class")
    named = str(named or (_PIECES if kind == "m2m_100" else "")).removesuffix("Fast")
    if kind != "m2m_100" and named not in _OF_LANGUAGES:
        if source is not None or target is not None:
            raise UserError(
                f"{where}: --from and --to are for models of many languages, such as M2M-100, "
                "NLLB-200 and mBART-50; leave them out"
            )
        vocabulary = _vocabulary(folder, config, rows)
        before = tokens_before(vocabulary.files, vocabulary, where)
        # transformers reads it from config.json only if there is no generation_config.json.
        forced = (read_generation(folder) or config).get(FORCED)
        if forced is None:
            return PairTokenisers(ImportedTokenisers.of(vocabulary, before), None)
        if [vocabulary.places[token] for token in before] != [forced]:
            raise forced_error(forced, where)
        return PairTokenisers(ImportedTokenisers.between(vocabulary, *before, *before), None)
    if settings.get("legacy_behaviour"):
        raise UserError(
            f"{where}/tokenizer_config.json: legacy_behaviour = true is not supported: it puts the "
            "token of the language after a text instead of before it"
        )
    if named == _PIECES:
        known = language_rows(files, where)
        languages = _languages(source, target, known, where)
        special = find_m2m_special(files, config, where)
        made = M2MTokenisers.read(files, special, rows, languages, where)
        return PairTokenisers(made, languages)
    vocabulary = _vocabulary(folder, config, rows)
    if named not in _OF_LANGUAGES:  # a class that uses the file's own symbols around a text
        tokens_before(vocabulary.files, vocabulary, where)
    known = language_tokens(vocabulary)
    languages = _languages(source, target, known, where)
    tokens = (language_token(one, known, where) for one in languages)
    return PairTokenisers(ImportedTokenisers.between(vocabulary, *tokens), languages)


def _vocabulary(folder: Path, config: Mapping[str, Any], rows: int) -> ImportedVocabulary:
    where, files = str(folder), read_files(folder)
    check_tokeniser(files, config, where)
    return ImportedVocabulary(files, find_pair_special(files, config, where), rows, where)


def _languages(
    source: str | None, target: str | None, known: Mapping[str, int], where: str
) -> Languages:
    if source is None or target is None:
        some = ", ".join(sorted(known)[:8])
        missing = "--from" if source is None else "--to"
        raise UserError(
            f"{where}: a model of {len(known)} languages ({some}{', …' * (len(known) > 8)}): name "
            f"those to translate between with --from and --to; {missing} is missing"
        )
    for one in (source, target):
        language_token(one, known, where)
    return Languages(source, target)
