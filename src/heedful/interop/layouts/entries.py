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


class Conversion(NamedTuple):
    """A conversion and its inverse."""

    to_heedful: Callable[[Tensor], Tensor]
    to_external: Callable[[Tensor], Tensor]

    def then(self, other: "Conversion") -> "Conversion":
        """This conversion followed by ``other``, in the direction to heedful."""
        return Conversion(
            lambda external: other.to_heedful(self.to_heedful(external)),
            lambda internal: self.to_external(other.to_external(internal)),
        )


SAME = Conversion(lambda external: external, lambda internal: internal)
TRANSPOSED = Conversion(lambda external: external.T, lambda internal: internal.T)


def permuted(order: Tensor, dim: int) -> Conversion:
    """Along ``dim``, index i of heedful is index ``order[i]`` of the other layout."""
    back = torch.argsort(order)
    return Conversion(
        lambda external: external.index_select(dim, order),
        lambda internal: internal.index_select(dim, back),
    )


def symbols(places: Places, fill: float = 0.0) -> Conversion:
    """Convert rows ``[W, ..]`` to symbols ``[V, ..]``; missing rows become ``fill``."""
    internal_rows = [symbol for symbol, place in enumerate(places) if place is not None]
    external_rows = [place for place in places if place is not None]
    own, other = torch.tensor(internal_rows), torch.tensor(external_rows)

    def to_heedful(external: Tensor) -> Tensor:
        table = external.new_full((len(places), *external.shape[1:]), fill)
        table[own] = external[other]
        return table

    def to_external(internal: Tensor) -> Tensor:
        table = internal.new_zeros(len(external_rows), *internal.shape[1:])
        table[other] = internal[own]
        return table

    return Conversion(to_heedful, to_external)


class Entry(NamedTuple):
    """A tensor of the other layout, and the tensors of heedful that are concatenated in it."""

    external: str
    shape: tuple[int, ...]
    """The shape in the other layout."""
    internal: tuple[str, ...]
    convert: Conversion = SAME
    """Converts the tensor, which is then split into equal parts along dimension 0."""
    aliases: tuple[str, ...] = ()
    """Further names of the same tensor in a file."""
    optional: bool = False
    """Whether the tensor is zero if a file does not contain it."""


def to_heedful(
    entries: Sequence[Entry], tensors: Mapping[str, Tensor], where: str
) -> dict[str, Tensor]:
    """Convert tensors to heedful's, in float32.

    Raises:
        UserError: a tensor is missing, unknown or does not have the shape that the configuration
            gives, or two tied tensors differ.
    """
    known = {name for entry in entries for name in (entry.external, *entry.aliases)}
    if unknown := sorted(set(tensors) - known):
        raise UserError(
            f"{where}: the tensor '{unknown[0]}' is not in the layout that config.json describes"
            + (f" (nor are {len(unknown) - 1} others)" if len(unknown) > 1 else "")
        )
    internal: dict[str, Tensor] = {}
    for entry in entries:
        whole = entry.convert.to_heedful(_found(entry, tensors, where).float())
        parts = whole.chunk(len(entry.internal), 0)
        internal |= {
            name: part.contiguous() for name, part in zip(entry.internal, parts, strict=True)
        }
    return internal


def _found(entry: Entry, tensors: Mapping[str, Tensor], where: str) -> Tensor:
    names = [name for name in (entry.external, *entry.aliases) if name in tensors]
    if not names:
        if entry.optional:
            return torch.zeros(entry.shape)
        raise UserError(f"{where}: the tensor '{entry.external}' is missing")
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


def to_external(entries: Sequence[Entry], tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Convert heedful's tensors; ``tensors`` contains all that the entries name."""
    external = {}
    for entry in entries:
        whole = torch.cat([tensors[name] for name in entry.internal], 0)
        external[entry.external] = entry.convert.to_external(whole).contiguous()
    return external
