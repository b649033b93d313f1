"""Language codes as files write them: ``en``, ``en-US``, ``en_us``, ``sr@latin``."""

from collections.abc import Iterable, Sequence

from heedful.basics.errors import UserError


def normalise_code(code: str) -> str:
    """One spelling for a code: lower case, parts joined by ``-``.

    Example:
        >>> normalise_code("pt_BR")
        'pt-br'
    """
    return code.strip().replace("_", "-").replace("@", "-").casefold()


def takes(wanted: str, code: str) -> bool:
    """Whether the requested code is ``code`` or a prefix of it, part by part.

    Example:
        >>> takes("en", "en_US"), takes("en-US", "en"), takes("en", "enm")
        (True, False, False)
    """
    wanted, code = normalise_code(wanted), normalise_code(code)
    return code == wanted or code.startswith(wanted + "-")


def choose(wanted: str, codes: Sequence[str]) -> int | None:
    """The place of the best match: the same code if it is there, else the first it is a prefix of.

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
