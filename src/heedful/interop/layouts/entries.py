"""Conversion of tensors in both directions, from one table.

Shapes: V symbols of heedful, W rows of the other layout's table, D width.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from heedful.basics.errors import UserError

NEVER = -1e4
"""The logit of a symbol that the other layout does not have: very low, but finite."""

Places = Sequence[int | None]
"""For each symbol of heedful its row in the other table, or None if it has none."""


class Turn(NamedTuple):
    """A conversion and its inverse."""

    to_ours: Callable[[Tensor], Tensor]
    to_theirs: Callable[[Tensor], Tensor]

    def then(self, other: "Turn") -> "Turn":
        """This conversion followed by ``other``, in the direction to heedful."""
        return Turn(
            lambda theirs: other.to_ours(self.to_ours(theirs)),
            lambda ours: self.to_theirs(other.to_theirs(ours)),
        )


SAME = Turn(lambda theirs: theirs, lambda ours: ours)
TRANSPOSED = Turn(lambda theirs: theirs.T, lambda ours: ours.T)


def permuted(order: Tensor, dim: int) -> Turn:
    """Along ``dim``, index i of heedful is index ``order[i]`` of the other layout."""
    back = torch.argsort(order)
    return Turn(
        lambda theirs: theirs.index_select(dim, order), lambda ours: ours.index_select(dim, back)
    )


def symbols(places: Places, fill: float = 0.0) -> Turn:
    """Convert rows ``[W, ..]`` to symbols ``[V, ..]``; missing rows become ``fill``."""
    ours_at = [symbol for symbol, place in enumerate(places) if place is not None]
    theirs_at = [place for place in places if place is not None]
    own, other = torch.tensor(ours_at), torch.tensor(theirs_at)

    def to_ours(theirs: Tensor) -> Tensor:
        table = theirs.new_full((len(places), *theirs.shape[1:]), fill)
        table[own] = theirs[other]
        return table

    def to_theirs(ours: Tensor) -> Tensor:
        table = ours.new_zeros(len(theirs_at), *ours.shape[1:])
        table[other] = ours[own]
        return table

    return Turn(to_ours, to_theirs)


class Entry(NamedTuple):
    """A tensor of the other layout, and the tensors of heedful that are concatenated in it."""

    theirs: str
    shape: tuple[int, ...]
    """The shape in the other layout."""
    ours: tuple[str, ...]
    turn: Turn = SAME
    """Converts the tensor, which is then split into equal parts along dimension 0."""
    aliases: tuple[str, ...] = ()
    """Further names of the same tensor in a file."""
    optional: bool = False
    """Whether the tensor is zero if a file does not contain it."""


def to_ours(
    entries: Sequence[Entry], tensors: Mapping[str, Tensor], where: str
) -> dict[str, Tensor]:
    """Convert tensors to heedful's, in float32.

    Raises:
        UserError: a tensor is missing, unknown or does not have the shape that the configuration
            gives, or two tied tensors differ.
    """
    known = {name for entry in entries for name in (entry.theirs, *entry.aliases)}
    if unknown := sorted(set(tensors) - known):
        raise UserError(
            f"{where}: the tensor '{unknown[0]}' is not in the layout that config.json describes"
            + (f" (nor are {len(unknown) - 1} others)" if len(unknown) > 1 else "")
        )
    ours: dict[str, Tensor] = {}
    for entry in entries:
        whole = entry.turn.to_ours(_found(entry, tensors, where).float())
        parts = whole.chunk(len(entry.ours), 0)
        ours |= {name: part.contiguous() for name, part in zip(entry.ours, parts, strict=True)}
    return ours


def _found(entry: Entry, tensors: Mapping[str, Tensor], where: str) -> Tensor:
    names = [name for name in (entry.theirs, *entry.aliases) if name in tensors]
    if not names:
        if entry.optional:
            return torch.zeros(entry.shape)
        raise UserError(f"{where}: the tensor '{entry.theirs}' is missing")
    for name in names:
        if tensors[name].shape != entry.shape:
            raise UserError(
                f"{where}: '{name}' has shape {list(tensors[name].shape)}, but config.json gives "
                f"{list(entry.shape)}; the files belong to different models"
            )
        if not tensors[name].is_floating_point():
            kind = str(tensors[name].dtype).removeprefix("torch.")
            raise UserError(f"{where}: '{name}' is {kind}; only floating-point weights are read")
        if not torch.equal(tensors[name], tensors[names[0]]):
            raise UserError(f"{where}: '{names[0]}' and '{name}' differ, but config.json ties them")
    return tensors[names[0]]


def to_theirs(entries: Sequence[Entry], tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Convert heedful's tensors; ``tensors`` contains all that the entries name."""
    theirs = {}
    for entry in entries:
        whole = torch.cat([tensors[name] for name in entry.ours], 0)
        theirs[entry.theirs] = entry.turn.to_theirs(whole).contiguous()
    return theirs
