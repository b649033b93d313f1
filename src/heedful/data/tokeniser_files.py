"""Files of tokenisers of other libraries."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers.models import BPE, WordPiece

from heedful.basics.bounded_reading import parse_json, read_bytes
from heedful.basics.errors import UserError
from heedful.basics.files import atomic_file, write_json
from heedful.basics.limits import MOST_SYMBOLS
from heedful.basics.native import call_native
from heedful.basics.symbols import BEGIN, END, PAD, UNKNOWN
from heedful.data.added_tokens import add_tokens
from heedful.data.tokenizer_json import check_vocabulary, checked_tokenizer

FILES = (
    "tokenizer.json",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
)
"""Files of a tokeniser that are kept if they exist."""

_ROLES = ("pad", "unk", "cls", "sep", "mask")
"""The roles of PAD, UNKNOWN, BEGIN, END and the mask in encoders."""
_GENERATING_ROLES = ("pad", "unk", "bos", "eos")
"""The roles in models that generate texts."""
_GENERATING = {
    "bytes": (None, None, None, "<|endoftext|>"),
    "unigram": ("<pad>", "<unk>", None, "</s>"),
    "merges": ("<pad>", "<unk>", None, "</s>"),
}
"""Usual names in models that generate texts."""
_SWITCHES = (
    "do_lower_case",
    "tokenize_chinese_chars",
    "strip_accents",
    "separate_vocabs",
    "add_prefix_space",
    "keep_accents",
)
_ADDING = ("add_bos_token", "add_eos_token")
"""Also options for special tokens around a text, which the model adds itself."""
_ROBERTA = ("<pad>", "<unk>", "<s>", "</s>", "<mask>")
_NAMES = {
    "wordpiece": (("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"),),
    "bytes": (_ROBERTA,),
    "unigram": (
        ("<pad>", "<unk>", "<cls>", "<sep>", "<mask>"),
        ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"),
        _ROBERTA,
    ),
    "merges": (_ROBERTA,),
}
"""Usual names in encoders; if there are several, the first that are all in the vocabulary, or the
last."""


def write_kept(
    folder: Path, files: Mapping[str, bytes], name: str, index: Mapping[str, Any]
) -> None:
    """Write files unchanged, and at last an index with their hashes, which `read_kept` checks.

    Args:
        folder: an existing folder.
        files: the content of the files.
        name: the name of the index.
        index: what else the index has.
    """
    for file_name, content in files.items():
        with atomic_file(folder / file_name) as file:
            file.write(content)
    hashes = {file_name: hash_of(content) for file_name, content in files.items()}
    write_json(folder / name, {**index, "files": hashes})


def read_kept(
    folder: Path, index: Mapping[str, Any], name: str, known: Sequence[str]
) -> dict[str, bytes]:
    """Read the files in an index, and check their hashes.

    Raises:
        UserError: the index is damaged, or a file is missing or has changed.
    """
    listed = index.get("files")
    if not isinstance(listed, dict) or not set(listed) <= set(known):
        raise UserError(f"{folder / name}: no list of a tokeniser's files; the file is damaged")
    files = {}
    for file, value in listed.items():
        files[file] = read_bytes(folder / file)
        if hash_of(files[file]) != value:
            raise UserError(f"{folder / file}: not the file that was saved here; it was changed")
    return files


def read_files(folder: Path, known: Sequence[str] = FILES) -> dict[str, bytes]:
    """The content of the files of ``known`` that exist in a folder."""
    return {name: read_bytes(folder / name) for name in known if (folder / name).is_file()}


def read_tokenizer(files: Mapping[str, bytes], where: str) -> Tokenizer:
    """The tokeniser from ``tokenizer.json``, or from older vocabulary files.

    Raises:
        UserError: the files are missing or damaged.
    """
    try:
        tokenizer: Tokenizer = call_native(_read, files, where)
    except UserError:
        raise
    except Exception as error:  # tokenizers raises bare Exception
        raise UserError(f"{where}: the tokeniser's files are damaged ({error})") from error
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def _read(files: Mapping[str, bytes], where: str) -> Tokenizer:
    if "tokenizer.json" in files:
        checked = checked_tokenizer(files["tokenizer.json"], f"{where}/tokenizer.json")
        tokenizer = Tokenizer.from_str(checked)
    elif "vocab.txt" in files:
        tokenizer = _wordpiece(files, where)
    elif "vocab.json" in files and "merges.txt" in files:
        tokenizer = _byte_merges(files, where)
    else:
        raise UserError(
            f"{where}: no tokeniser: there is no tokenizer.json, no vocab.txt, and no vocab.json "
            "with merges.txt"
        )
    add_tokens(tokenizer, files, read_tokeniser_settings(files, where), where)
    return tokenizer


def family_of(tokenizer: Tokenizer, where: str) -> str:
    """``wordpiece``, ``bytes``, ``merges`` (BPE of characters) or ``unigram``.

    Raises:
        UserError: the tokeniser is of another kind.
    """
    described = json.loads(tokenizer.to_str())
    model = described["model"].get("type")
    if model == "WordPiece" and described["model"].get("continuing_subword_prefix") == "##":
        return "wordpiece"
    if model == "BPE" and "ByteLevel" in json.dumps([described["pre_tokenizer"]]):
        return "bytes"
    if "Metaspace" in json.dumps([described["pre_tokenizer"]]):
        if model == "Unigram":
            return "unigram"
        affixes = ("continuing_subword_prefix", "end_of_word_suffix", "byte_fallback")
        if model == "BPE" and not any(described["model"].get(name) for name in affixes):
            return "merges"
    raise UserError(
        f"{where}: a tokeniser of kind '{model}'; WordPiece, byte-level BPE, and BPE and Unigram "
        "with Metaspace are supported"
    )


def find_special(
    files: Mapping[str, bytes], where: str, *, encoder: bool = True
) -> list[int | None]:
    """The ids of PAD, UNKNOWN, BEGIN, END and, if there is one, the mask.

    If a token has several roles, END has precedence over BEGIN, UNKNOWN and PAD.

    Args:
        files: the files of the tokeniser.
        where: the folder, for messages.
        encoder: whether the model is an encoder, whose texts are between ``cls_token`` and
            ``sep_token``; in models that generate texts, ``bos_token`` and ``eos_token`` are used,
            and there is no mask.

    Raises:
        UserError: END is missing; or, in an encoder whose tokeniser is not of bytes, BEGIN or
            UNKNOWN.
    """
    tokenizer = read_tokenizer(files, where)
    family = family_of(tokenizer, where)
    settings = read_tokeniser_settings(files, where)
    roles, usual = _roles_and_names(tokenizer.get_vocab(), family, encoder=encoder)
    names = [settings.get(f"{role}_token", name) for role, name in zip(roles, usual, strict=True)]
    found = [None if name is None else tokenizer.token_to_id(name) for name in names]
    optional = family == "bytes" or roles is _GENERATING_ROLES
    for symbol in (END,) if optional else (UNKNOWN, BEGIN, END):
        if found[symbol] is None:
            raise UserError(
                f"{where}: the tokeniser has no {roles[symbol]}_token (such as {usual[symbol]}); "
                "name it in tokenizer_config.json"
            )
    for symbol in (PAD, UNKNOWN, BEGIN):
        if found[symbol] in found[symbol + 1 :]:
            found[symbol] = None
    return found if len(found) <= END + 1 or found[-1] is not None else found[:-1]


def _roles_and_names(
    vocabulary: Mapping[str, int], family: str, *, encoder: bool
) -> tuple[Sequence[str], Sequence[str | None]]:
    """The roles of PAD, UNKNOWN, BEGIN, END and the mask, and their usual names."""
    if family in _GENERATING and not encoder:
        return _GENERATING_ROLES, _GENERATING[family]
    known = _NAMES[family]
    whole = (names for names in known if all(name in vocabulary for name in names))
    return _ROLES, next(whole, known[-1])


def read_tokeniser_settings(files: Mapping[str, bytes], where: str) -> dict[str, Any]:
    """Settings from the settings files, with names of tokens as plain strings.

    Raises:
        UserError: a file is damaged.
    """
    settings: dict[str, Any] = {}
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        if name in files:
            given = parse_json(files[name], f"{where}/{name}")
            settings |= given if isinstance(given, dict) else {}
    plain = {
        key: value["content"] if isinstance(value, dict) and "content" in value else value
        for key, value in settings.items()
        if value is not None
    }
    for key, value in plain.items():
        wanted = str if key.endswith("_token") else bool if key in _SWITCHES else object
        if not isinstance(value, wanted) and key not in _ADDING:
            what = "a token's text" if wanted is str else "true or false"
            raise UserError(
                f"{where}/tokenizer_config.json: {key} = {json.dumps(value)}: expected {what}"
            )
    return plain


def _wordpiece(files: Mapping[str, bytes], where: str) -> Tokenizer:
    settings = read_tokeniser_settings(files, where)
    count = files["vocab.txt"].count(b"\n")
    if count > MOST_SYMBOLS:
        raise UserError(
            f"{where}/vocab.txt: {count:,} tokens, more than the {MOST_SYMBOLS:,} that are "
            "supported"
        )
    lines = files["vocab.txt"].decode("utf-8").split("\n")
    names = [line.removesuffix("\r") for line in (lines[:-1] if lines[-1] == "" else lines)]
    rows = {name: row for row, name in enumerate(names)}
    check_vocabulary(rows, f"{where}/vocab.txt")
    unknown = settings.get("unk_token", "[UNK]")
    tokenizer = Tokenizer(WordPiece(rows, unk_token=unknown))
    tokenizer.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=settings.get("tokenize_chinese_chars", True),
        strip_accents=settings.get("strip_accents"),
        lowercase=settings.get("do_lower_case", True),
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(prefix="##")
    roles, names_of_roles = _roles_and_names(rows, "wordpiece", encoder=True)
    special = [
        settings.get(f"{role}_token", usual)
        for role, usual in zip(roles, names_of_roles, strict=True)
    ]
    present = [AddedToken(name, special=True) for name in special if name in names]
    tokenizer.add_special_tokens(present)
    return tokenizer


def _byte_merges(files: Mapping[str, bytes], where: str) -> Tokenizer:
    settings = read_tokeniser_settings(files, where)
    vocabulary = parse_json(files["vocab.json"], f"{where}/vocab.json", 2 * MOST_SYMBOLS)
    check_vocabulary(vocabulary, f"{where}/vocab.json")
    lines = files["merges.txt"].decode("utf-8").split("\n")
    pairs = [line.partition(" ") for line in lines if line and not line.startswith("#version")]
    merges = [(left, right) for left, _, right in pairs]
    tokenizer = Tokenizer(BPE(vocabulary, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(
        add_prefix_space=settings.get("add_prefix_space", False)
    )
    tokenizer.decoder = decoders.ByteLevel()
    # RoBERTa's vocabulary has the symbol of GPT-2, too, as an ordinary token.
    usual = _ROBERTA if all(name in vocabulary for name in _ROBERTA) else ("<|endoftext|>",)
    given = [settings.get(f"{role}_token") for role in (*_ROLES, *_GENERATING_ROLES)]
    present = dict.fromkeys(name for name in (*given, *usual) if name in vocabulary)
    mask = settings.get("mask_token", usual[-1]) if _has_stripped_mask(files, where) else None
    tokenizer.add_special_tokens(
        [AddedToken(name, special=True, lstrip=name == mask) for name in present]
    )
    return tokenizer


def _has_stripped_mask(files: Mapping[str, bytes], where: str) -> bool:
    """Whether the settings say that the space before a mask belongs to the mask."""
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        given = parse_json(files[name], f"{where}/{name}") if name in files else None
        mask = given.get("mask_token") if isinstance(given, dict) else None
        if isinstance(mask, dict):
            return mask.get("lstrip") is True
    return False


def hash_of(content: bytes) -> str:
    """SHA-256 as hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()
