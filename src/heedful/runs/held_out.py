"""Which part of a corpus an example goes to, where no files name the parts."""

import hashlib


def part_of(text: str, seed: int, shares: dict[str, float]) -> str:
    """``validation``, ``test`` or ``train``: examples of one text always go to the same.

    Args:
        text: what the example is known by.
        seed: chooses.
        shares: of ``validation`` and ``test``, from 0 to 1.
    """
    if not any(shares.values()):
        return "train"
    place = place_of(text, seed)
    if place < shares["validation"]:
        return "validation"
    return "test" if place < shares["validation"] + shares["test"] else "train"


def place_of(text: str, seed: int) -> float:
    """Where a text stands between 0 and 1: held out are those below the shares."""
    salted = f"{seed} {text.strip()}".encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(salted, digest_size=8).digest()) / 2**64
