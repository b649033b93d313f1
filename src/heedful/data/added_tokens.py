"""Tokens that other files of a tokeniser add to its vocabulary, as ``AutoTokenizer`` adds them."""

import json
import re
from collections.abc import Collection, Mapping
from typing import Any

from tokenizers import AddedToken, Tokenizer

from heedful.basics.bounded_reading import parse_json
from heedful.basics.errors import UserError
from heedful.data.tokenizer_json import check_added

FILE = "added_tokens.json"
_NAMED = [f"{role}_token" for role in ("bos", "eos", "unk", "sep", "pad", "cls", "mask")]
_NUMBER = re.compile("[0-9]{1,9}")
_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")


def add_tokens(
    tokenizer: Tokenizer, files: Mapping[str, bytes], settings: Mapping[str, Any], where: str
) -> None:
    """Add the tokens that `listed_tokens` gives.

    Raises:
        UserError: a file is damaged, or a token would have another id than the file says.
    """
    listed = listed_tokens(files, settings, where)
    own = [token.content for token in tokenizer.get_added_tokens_decoder().values()]
    known = own if "tokenizer.json" in files else []
    tokenizer.add_tokens([_token(token) for token in listed])
    for token in listed:
        text, found = token["content"], tokenizer.token_to_id(token["content"])
        if text not in known and token.get("id", found) != found:
            raise UserError(
                f"{where}: the added token {_shown(text)} has the id {token['id']}, but the "
                f"vocabulary gives it {found}; the files belong to different models"
            )


def refuse_unknown_tokens(
    files: Mapping[str, bytes], settings: Mapping[str, Any], known: Collection[str], where: str
) -> None:
    """Raise UserError if a token is added that the vocabulary ``known`` does not contain."""
    for token in listed_tokens(files, settings, where):
        if token["content"] not in known:
            raise UserError(
                f"{where}: the token {_shown(token['content'])} is added to those of vocab.json, "
                "which is not supported for a tokeniser of this kind"
            )


def listed_tokens(
    files: Mapping[str, bytes], settings: Mapping[str, Any], where: str
) -> list[dict[str, Any]]:
    """The texts, flags and, where given, ids of the tokens that settings and a file add.

    Args:
        files: the files of the tokeniser.
        settings: the content of ``tokenizer_config.json``.
        where: the folder, for messages.

    Raises:
        UserError: a list is damaged.
    """
    name = "extra_special_tokens"
    if not settings.get(name):
        name = "additional_special_tokens"
    extra = settings.get(name) or []
    given = list(extra.values()) if isinstance(extra, dict) else extra
    at = f"{where}: {name}"
    if not isinstance(given, list):
        raise UserError(f"{at} is not a list of tokens; the file is damaged")
    special = [{"content": one} if isinstance(one, str) else one for one in given]
    check_added(special, at)
    special = [{**one, "special": True} for one in special]
    texts = {one["content"] for one in special} | {settings.get(role) for role in _NAMED}
    found = _numbered(files, settings, texts, where)
    check_added(found, f"{where}: tokenizer_config.json or {FILE}")
    if not all(type(one["id"]) is int and one["id"] >= 0 for one in found):
        raise UserError(f"{where}: an added token has no number; the file is damaged")
    ordered = sorted(found, key=lambda one: int(one["id"]))
    numbered = {one["content"] for one in ordered}
    return ordered + [one for one in special if one["content"] not in numbered]


def _numbered(
    files: Mapping[str, bytes], settings: Mapping[str, Any], special: set[Any], where: str
) -> list[Any]:
    """The tokens with their ids: of the settings, or of the older file."""
    decoder = settings.get("added_tokens_decoder")
    if decoder is not None:
        items = decoder.items() if isinstance(decoder, dict) else [("", decoder)]
        return [
            {**token, "id": int(row) if _NUMBER.fullmatch(row) else None}
            if isinstance(token, dict)
            else token
            for row, token in items
        ]
    if FILE not in files:
        return []
    rows = parse_json(files[FILE], f"{where}/{FILE}")
    if not isinstance(rows, dict):
        raise UserError(f"{where}/{FILE}: not a table of tokens and numbers; the file is damaged")
    return [{"content": text, "id": row, "special": text in special} for text, row in rows.items()]


def _token(listed: Mapping[str, Any]) -> AddedToken:
    flags = {name: listed[name] for name in _FLAGS if isinstance(listed.get(name), bool)}
    return AddedToken(listed["content"], **flags)


def _shown(text: str) -> str:
    return json.dumps(text)[:60]
