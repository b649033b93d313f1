"""Names of the fixed symbols of heedful's vocabularies."""

import hashlib
from collections.abc import Iterable

from heedful.data.subwords import MASK

_NAMES = ("<pad>", "<unk>", "<s>", "</s>")


def fixed_names(mask: bool) -> list[str]:
    """Names of PAD, UNKNOWN, BEGIN, END, and the mask (4) if there is one."""
    return [*_NAMES, MASK] if mask else list(_NAMES)


def digest(parts: Iterable[str]) -> str:
    """A hash of texts and their boundaries."""
    found = hashlib.sha256()
    for part in parts:
        content = part.encode("utf-8")
        found.update(f"{len(content)} ".encode())
        found.update(content)
    return found.hexdigest()
