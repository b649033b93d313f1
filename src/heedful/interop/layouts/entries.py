"""Rearranging tensors both ways, from one table.

Shapes: V symbols of ours, W rows of theirs, D width.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from heedful.basics.errors import UserError

NEVER = -1e4
"""The logit of a symbol that the other side does not have: far below all others, yet finite."""

Places = Sequence[int | None]
"""For each symbol of ours its row in their table, or None where they have none."""


class Turn(NamedTuple):
    """A rearrangement and its inverse."""

    to_ours: Callable[[Tensor], Tensor]
    to_theirs: Callable[[Tensor], Tensor]

    def then(self, other: "Turn") -> "Turn":
        """This one, then ``other``, on the way to ours."""
        return Turn(
            lambda theirs: other.to_ours(self.to_ours(theirs)),
            lambda ours: self.to_theirs(other.to_theirs(ours)),
        )


SAME = Turn(lambda theirs: theirs, lambda ours: ours)
TRANSPOSED = Turn(lambda theirs: theirs.T, lambda ours: ours.T)


def permuted(order: Tensor, dim: int) -> Turn:
    """Along ``dim``, place i of ours is place ``order[i]`` of theirs."""
    back = torch.argsort(order)
    return Turn(
        lambda theirs: theirs.index_select(dim, order), lambda ours: ours.index_select(dim, back)
    )


def symbols(places: Places, fill: float = 0.0) -> Turn:
    """``[W, ..]`` of theirs to ``[V, ..]`` of ours; rows that they do not have are ``fill``."""
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
    """One tensor of theirs, and the tensors of ours that it is, side by side."""

    theirs: str
    shape: tuple[int, ...]
    """Of theirs."""
    ours: tuple[str, ...]
    turn: Turn = SAME
    """After it, theirs is cut into equal parts along dimension 0."""
    aliases: tuple[str, ...] = ()
    """Further names under which a file may hold the same tensor again."""
    optional: bool = False
    """Whether it is zeros where a file does not have it."""


def to_ours(
    entries: Sequence[Entry], tensors: Mapping[str, Tensor], where: str
) -> dict[str, Tensor]:
    """Our tensors, float32, from theirs.

    Raises:
        UserError: a tensor is missing, not known, not of the shape that the configuration gives,
            or two that are to be one differ.
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
    """Their tensors from ours; entries' names of ours are all among ``tensors``."""
    theirs = {}
    for entry in entries:
        whole = torch.cat([tensors[name] for name in entry.ours], 0)
        theirs[entry.theirs] = entry.turn.to_theirs(whole).contiguous()
    return theirs
