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
    salted = f"{seed} {text.strip()}".encode("utf-8", "surrogatepass")
    place = int.from_bytes(hashlib.blake2b(salted, digest_size=8).digest()) / 2**64
    if place < shares["validation"]:
        return "validation"
    return "test" if place < shares["validation"] + shares["test"] else "train"
