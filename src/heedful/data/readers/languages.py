"""Language codes in files: ``en``, ``en-US``, ``en_us``, ``sr@latin``."""

from collections.abc import Iterable, Sequence

from heedful.basics.errors import UserError


def normalise_code(code: str) -> str:
    """Normalise a code: lower case, with ``-`` between parts.

    Example:
        >>> normalise_code("pt_BR")
        'pt-br'
    """
    return code.strip().replace("_", "-").replace("@", "-").casefold()


def takes(wanted: str, code: str) -> bool:
    """Whether the requested code equals ``code`` or its first parts.

    Example:
        >>> takes("en", "en_US"), takes("en-US", "en"), takes("en", "enm")
        (True, False, False)
    """
    wanted, code = normalise_code(wanted), normalise_code(code)
    return code == wanted or code.startswith(wanted + "-")


def choose(wanted: str, codes: Sequence[str]) -> int | None:
    """The index of the best match: an equal code, else the first code that begins with it.

    Example:
        >>> choose("de", ["de-AT", "DE"]), choose("de", ["de-AT"]), choose("de", ["nl"])
        (1, 0, None)
    """
    normalised = [normalise_code(code) for code in codes]
    if normalise_code(wanted) in normalised:
        return normalised.index(normalise_code(wanted))
    return next((place for place, code in enumerate(codes) if takes(wanted, code)), None)


def related(wanted: str, code: str) -> bool:
    """Whether either code is a prefix of the other: a file in ``de`` serves ``de-AT``."""
    return takes(wanted, code) or takes(code, wanted)


def not_in_file(wanted: str, name: str, codes: Iterable[str]) -> UserError:
    """The error for a language that a file does not have."""
    there = ", ".join(sorted({code for code in codes if code})) or "none"
    return UserError(f"language '{wanted}' is not in {name}; its languages are: {there}")
