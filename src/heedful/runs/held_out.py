"""Assigns examples to training, validation or test data, if no files are given for these."""

import hashlib


def part_of(text: str, seed: int, shares: dict[str, float]) -> str:
    """``validation``, ``test`` or ``train``; examples with the same text always get the same part.

    Args:
        text: identifies the example.
        seed: of the random assignment.
        shares: of ``validation`` and ``test``, each from 0 to 1.
    """
    if not any(shares.values()):
        return "train"
    place = pseudo_random(text, seed)
    if place < shares["validation"]:
        return "validation"
    return "test" if place < shares["validation"] + shares["test"] else "train"


def pseudo_random(text: str, seed: int) -> float:
    """A pseudo-random number from 0 to 1 for a text; texts below the shares are held out."""
    salted = f"{seed} {text.strip()}".encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(salted, digest_size=8).digest()) / 2**64
