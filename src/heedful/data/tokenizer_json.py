"""Validate a ``tokenizer.json`` before the library reads it.

The library runs any regular expression of a file, some of which take exponential time or cause a
panic, and chains of replacements that make a text exponentially longer. Therefore, only steps with
linear time and memory are supported.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from heedful.basics.bounded_reading import parse_json
from heedful.basics.errors import UserError
from heedful.basics.limits import MOST_SYMBOLS
from heedful.data.unigram_json import check_charsmap, check_unigram

_NORMALIZERS = frozenset(
    {"BertNormalizer", "NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Strip", "Nmt"}
)
_PRE_TOKENIZERS = frozenset(
    {
        *("BertPreTokenizer", "ByteLevel", "Whitespace", "WhitespaceSplit", "Punctuation"),
        *("Digits", "UnicodeScripts", "CharDelimiterSplit"),
    }
)
METASPACE = "▁"
"""The character that stands for a space in the pieces of a Unigram model."""
_CASED = r"[\p{Cased}&&[^\p{Case_Ignorable}]]"
FINAL_SIGMA = rf"(?<={_CASED}\p{{Case_Ignorable}}*)Σ(?!\p{{Case_Ignorable}}*{_CASED})"
"""A capital sigma at the end of a word, whose lower case is ς; it takes linear time."""
_REPLACED: tuple[tuple[dict[str, str], tuple[str, ...]], ...] = (
    ({"Regex": " {2,}"}, (" ", METASPACE)),
    ({"Regex": r"\n"}, (" ",)),
    ({"Regex": FINAL_SIGMA}, ("ς",)),
    ({"String": "``"}, ('"',)),
    ({"String": "''"}, ('"',)),
)
"""Patterns of the normalizer ``Replace`` and their contents, which make no text longer."""
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_PATTERNS = frozenset(
    {
        r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
        LLAMA3,
        QWEN2,
    }
)
"""The regular expressions of GPT-2, Llama 3 and Qwen 2, which take linear time."""
_MOST_STEPS = 16
_MOST_ADDED = 10_000
_LONGEST_ADDED = 1_000
_LONGEST_WORD = 1_000
"""Maximum characters of a word for WordPiece, which takes quadratic time; BERT uses 100. Also of a
piece for Unigram, whose time is proportional to the longest piece."""


def checked_tokenizer(content: bytes, where: str) -> str:
    """The validated content of a ``tokenizer.json``, with only the parts that find tokens.

    Args:
        content: the content of the file.
        where: name of the file, for messages.

    Raises:
        UserError: the file is damaged, too large, or has an unsupported step.
    """
    values = parse_json(content, where)
    if not isinstance(values, dict) or not isinstance(values.get("model"), dict):
        raise UserError(f"{where}: no model; the file is damaged")
    if values["model"].get("type") == "Unigram":
        check_unigram(values["model"], where, _LONGEST_WORD)
    else:
        _check_model(values["model"], where)
    added = values.get("added_tokens") or []
    check_added(added, where)
    _check_steps(values, "normalizer", "normalizers", _NORMALIZERS, where)
    _check_steps(values, "pre_tokenizer", "pretokenizers", _PRE_TOKENIZERS, where)
    parts = {name: values.get(name) for name in ("normalizer", "pre_tokenizer", "model")}
    nothing = dict.fromkeys(("truncation", "padding", "post_processor", "decoder"))
    return json.dumps({"version": "1.0", "added_tokens": added, **nothing, **parts})


def check_vocabulary(vocabulary: Any, where: str) -> None:
    """Raise UserError if a token has no id, or if there are too many tokens."""
    if not isinstance(vocabulary, dict) or not all(type(v) is int for v in vocabulary.values()):
        raise UserError(f"{where}: the vocabulary does not give each token a number")
    if len(vocabulary) > MOST_SYMBOLS:
        raise UserError(
            f"{where}: a vocabulary of {len(vocabulary):,} tokens, more than the {MOST_SYMBOLS:,} "
            "that are supported"
        )


def _check_model(model: Mapping[str, Any], where: str) -> None:
    if model.get("type", "BPE") not in ("BPE", "WordPiece"):
        raise UserError(
            f"{where}: a tokeniser of kind '{model['type']}'; WordPiece, byte-level BPE and "
            "Unigram are supported"
        )
    check_vocabulary(model.get("vocab"), where)
    merges = model.get("merges") or []
    if not isinstance(merges, list) or len(merges) > 2 * MOST_SYMBOLS:
        raise UserError(f"{where}: the list of merges is missing or too long; the file is damaged")
    if model.get("dropout"):
        raise UserError(f"{where}: model.dropout = {model['dropout']}: tokens would be random")
    longest = model.get("max_input_chars_per_word") or 0
    if type(longest) is not int or longest > _LONGEST_WORD:
        raise UserError(
            f"{where}: model.max_input_chars_per_word = {longest}: at most {_LONGEST_WORD:,} are "
            "supported"
        )


def check_added(added: Any, where: str) -> None:
    """Raise UserError if a list of added tokens is too long, or a token is no text."""
    if not isinstance(added, list) or len(added) > _MOST_ADDED:
        raise UserError(f"{where}: added_tokens is not a list of at most {_MOST_ADDED:,} tokens")
    for token in added:
        text = token.get("content") if isinstance(token, dict) else None
        if not isinstance(text, str) or not 0 < len(text) <= _LONGEST_ADDED:
            raise UserError(
                f"{where}: an added token has no text of 1 to {_LONGEST_ADDED:,} characters"
            )


def _check_steps(
    values: Mapping[str, Any], name: str, inner: str, known: frozenset[str], where: str
) -> None:
    """Raise UserError for an unsupported step, or one in a sequence."""
    whole = values.get(name)
    if whole is None:
        return
    steps: Any = [whole]
    if isinstance(whole, dict) and whole.get("type") == "Sequence":
        steps = whole.get(inner)
    if not isinstance(steps, list) or len(steps) > _MOST_STEPS:
        raise UserError(f"{where}: {name} is not a list of at most {_MOST_STEPS} steps")
    kinds = [step.get("type") if isinstance(step, dict) else None for step in steps]
    for kind, step in zip(kinds, steps, strict=True):
        if name == "normalizer" and kind == "Precompiled":
            check_charsmap(step, where)
        elif not _is_known(step, kind, name, known):
            shown = json.dumps(step, ensure_ascii=False)[:100]
            raise UserError(f"{where}: {name} {shown} is not supported")
    _check_repeated(kinds, name, where)


def _is_known(step: Any, kind: Any, name: str, known: frozenset[str]) -> bool:
    """Whether a step takes linear time and does not make a text much longer."""
    if name == "pre_tokenizer" and kind == "Split":
        return _is_known_split(step)
    if name == "pre_tokenizer" and kind == "Metaspace":
        return bool(step.get("replacement") == METASPACE)
    if name == "normalizer" and kind == "Replace":
        contents = [own for pattern, own in _REPLACED if step.get("pattern") == pattern]
        return bool(contents) and step.get("content") in contents[0]
    return isinstance(kind, str) and kind in known


def _is_known_split(step: Mapping[str, Any]) -> bool:
    pattern = step.get("pattern")
    return (
        isinstance(pattern, dict)
        and pattern.keys() == {"Regex"}
        and (pattern["Regex"] in _PATTERNS)
    )


def _check_repeated(kinds: Sequence[Any], name: str, where: str) -> None:
    """Raise UserError for repeated steps that make a text longer each time."""
    for kind in ("ByteLevel", "Precompiled", "Metaspace"):
        if kinds.count(kind) > 1:
            raise UserError(
                f"{where}: {name} contains {kind} {kinds.count(kind)} times instead of once"
            )
