"""The variants of a recipe: every combination of values for some of its settings."""

import difflib
import hashlib
import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tomlkit

from heedful.basics.errors import UserError
from heedful.runs.recipe import read_value
from heedful.runs.search_space import NOT_COMPARABLE, keys_within

Settings = dict[str, Any]

_LONGEST_FOLDER = 80
_PLAIN = re.compile(r"[a-z0-9][a-z0-9._-]*")
"""Values that file names distinguish on every file system."""
_FIXED = {
    "seed": "--seeds trains each variant with several seeds",
    "task": "all variants must have the same task",
    "training.max_minutes": "--budget sets it for all variants",
    **dict.fromkeys(NOT_COMPARABLE - {"data.train"}, "the figures would not be comparable"),
}
_EXPECTED = "expected KEY=VALUE,VALUE,… as in model.dropout=0.1,0.2"


@dataclass(frozen=True)
class Variant:
    """One combination of values.

    Attributes:
        name: the settings in short, ``score=dot normalizer=softmax``; unique in a comparison.
        folder: a file name made from ``name``; unique, and the same in every call.
        settings: the values by dotted key.
    """

    name: str
    folder: str
    settings: Settings


def read_vary(options: Sequence[str]) -> list[list[Settings]]:
    """Read the values of ``--vary``.

    Values are separated by commas. Each is TOML, or text if it is not TOML; commas inside quotes
    and brackets do not separate. Several keys before the ``=`` are varied together: the values for
    the keys are then separated by colons.

    Returns:
        For each option, its alternatives.

    Raises:
        UserError: an option is incomplete, or a key or a value is repeated.

    Example:
        >>> read_vary(["model.dropout=0.1,0.2"])
        [[{'model.dropout': 0.1}, {'model.dropout': 0.2}]]
        >>> read_vary(["model.heads,model.layers=4:1,8:2"])
        [[{'model.heads': 4, 'model.layers': 1}, {'model.heads': 8, 'model.layers': 2}]]
    """
    given: list[tuple[str, str, list[list[Any]]]] = []
    for option in options:
        where = f"--vary {option}"
        left, equals, right = option.partition("=")
        if not equals or not right.strip():
            raise UserError(f"{where}: {_EXPECTED}")
        several = "," in left
        values = []
        for part in split(right, ","):
            texts = [text.strip() for text in (split(part, ":") if several else [part])]
            if not all(texts):
                raise UserError(f"{where}: a value is empty; {_EXPECTED}")
            values.append([read_value(text) for text in texts])
        given.append((where, left, values))
    return _groups(given)


def vary_of(vary: Mapping[str, Sequence[Any]], where: str) -> list[list[Settings]]:
    """Like :func:`read_vary`, for the table ``[compare.vary]`` of a recipe.

    Example:
        >>> vary_of({"model.heads, model.layers": [[4, 1], [8, 2]]}, "recipe.toml")
        [[{'model.heads': 4, 'model.layers': 1}, {'model.heads': 8, 'model.layers': 2}]]
    """
    given: list[tuple[str, str, list[list[Any]]]] = []
    for keys, values in vary.items():
        own = f"{where}, [compare.vary] '{keys}'"
        several = "," in keys
        if not values or (several and not all(isinstance(value, list) for value in values)):
            raise UserError(f"{own}: give a list of {'lists of ' if several else ''}values")
        given.append((own, keys, [value if several else [value] for value in values]))
    return _groups(given)


def _groups(given: Sequence[tuple[str, str, list[list[Any]]]]) -> list[list[Settings]]:
    """The alternatives of each (origin, keys, values), checked."""
    groups: list[list[Settings]] = []
    seen: set[str] = set()
    for where, left, values in given:
        keys = [key.strip() for key in left.split(",")]
        if not all(keys):
            raise UserError(f"{where}: a key is empty; {_EXPECTED}")
        for place, key in enumerate(keys):
            if key in seen:
                raise UserError(f"{where}: '{key}' is varied twice; name it once")
            refuse_fixed(key, [each[place] for each in values if place < len(each)], where)
            seen.add(key)
        found: dict[str, Settings] = {}
        for each in values:
            shown = ":".join(map(_text, each))
            if len(each) != len(keys):
                raise UserError(
                    f"{where}: '{shown}' has {len(each)} of {len(keys)} values; separate them by "
                    "colons, as in model.heads,model.layers=4:1,8:2"
                )
            if shown in found:
                raise UserError(f"{where}: the value {shown} is given twice")
            found[shown] = dict(zip(keys, each, strict=True))
        groups.append(list(found.values()))
    return groups


def bases_of(groups: Sequence[Sequence[Settings]]) -> list[str]:
    """The values of ``base`` in alternatives of settings.

    Raises:
        UserError: a value is not text.
    """
    found = [each["base"] for group in groups for each in group if "base" in each]
    for one in found:
        if not isinstance(one, str):
            raise UserError(f"base = {one!r}: expected a recipe's name or path")
    return found


def refuse_fixed(key: str, values: Iterable[Any], where: str) -> None:
    """Raise UserError with the reason for a setting that cannot be varied, also in a table."""
    for one in keys_within(key, values):
        if one in _FIXED:
            raise UserError(f"{where}: '{one}' cannot be varied: {_FIXED[one]}")


def split(text: str, separator: str) -> list[str]:
    """The parts of a text between separators outside quotes and brackets.

    Example:
        >>> split("a,[1,2],'b,c'", ",")
        ['a', '[1,2]', "'b,c'"]
    """
    parts, depth, quote = [""], 0, ""
    for character in text:
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        elif character in "[{":
            depth += 1
        elif character in "]}":
            depth -= 1
        elif character == separator and depth <= 0:
            parts.append("")
            continue
        parts[-1] += character
    return parts


def combine(groups: Sequence[Sequence[Settings]]) -> list[Variant]:
    """Every combination of one alternative of each group, in order: the last group varies fastest.

    Example:
        >>> [one.name for one in combine([[{"model.cell": "gru"}], [{"seed": 1}, {"seed": 2}]])]
        ['cell=gru seed=1', 'cell=gru seed=2']
    """
    combined = [
        {key: value for settings in chosen for key, value in settings.items()}
        for chosen in itertools.product(*groups)
    ]
    return named(combined)


def named(combined: Sequence[Settings]) -> list[Variant]:
    """Variants with names and folders from their settings."""
    short = _short_keys(list(dict.fromkeys(key for each in combined for key in each)))
    variants: list[Variant] = []
    for settings in combined:
        values = {short[key]: _text(value) for key, value in settings.items()}
        name = " ".join(f"{key}={value}" for key, value in values.items()) or "recipe"
        folder = "_".join(f"{key}-{value}" for key, value in values.items()) or "recipe"
        is_plain = all(_PLAIN.fullmatch(value) for value in values.values())
        used = [variant.folder for variant in variants]
        if not is_plain or len(folder) > _LONGEST_FOLDER or folder in used:
            whole = hashlib.sha256(name.encode()).hexdigest()[:8]
            folder = re.sub(r"[^A-Za-z0-9._-]+", "-", folder)[:_LONGEST_FOLDER]
            folder = f"{folder.strip('-')}-{whole}"
        variants.append(Variant(name, folder, settings))
    return variants


def _short_keys(keys: Sequence[str]) -> dict[str, str]:
    """The last parts of each key that distinguish it from the others."""

    def ending(key: str, parts: int) -> str:
        return ".".join(key.split(".")[-parts:])

    short = {}
    for key in keys:
        parts = 1
        while any(key != other and ending(key, parts) == ending(other, parts) for other in keys):
            parts += 1
        short[key] = ending(key, parts)
    return short


def _text(value: Any) -> str:
    """A value in short; a table by its name or kind, with its other settings in parentheses.

    Example:
        >>> _text({"name": "rotary", "base": 500000}), _text([1, "a"]), _text("1")
        ('rotary(base=500000)', '[1, a]', '"1"')
    """
    if isinstance(value, str):
        return value if read_value(value) == value else tomlkit.item(value).as_string()
    if isinstance(value, list):
        return f"[{', '.join(map(_text, value))}]"
    if isinstance(value, Mapping):
        head = next((str(value[key]) for key in ("name", "kind") if key in value), "")
        inside = [f"{key}={_text(each)}" for key, each in value.items() if not head or each != head]
        return f"{head}({', '.join(inside)})" if inside else head or "{}"
    return str(tomlkit.item(value).as_string())


def find_variant(variants: Sequence[Variant], name: str, where: str) -> Variant:
    """The variant with a folder, or with a name; its settings may be in any order.

    Raises:
        UserError: there is none; the message suggests the nearest one.
    """
    for variant in variants:
        same = sorted(variant.name.split()) == sorted(name.split())
        if same or name == variant.folder:
            return variant
    names = [variant.name for variant in variants]
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.4)
    hint = f"did you mean '{near[0]}'?" if near else f"the variants are {'; '.join(names)}"
    raise UserError(f"{where}: no variant '{name}'; {hint}")
