"""The masks that recipes can name; they are combined with the masks of the model.

Recipes name masks that follow from positions, or from queries and keys. Padding, documents and
prefixes depend on the batch.
"""

from collections.abc import Callable
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from heedful.attention.masks.algebra import Grid, Mask
from heedful.attention.masks.grids import axial, neighbourhood
from heedful.attention.masks.kinds import block, causal, sinks, window
from heedful.attention.masks.top_blocks import TopBlocks
from heedful.basics.limits import MOST_POSITIONS
from heedful.basics.parts import Parts, PartSettings


class MaskSettings(PartSettings):
    """Base of the settings of masks; a table of this type is that of the mask it names.

    The mask broadcasts to scores ``[.., Q, K]``.

    Example:
        >>> mask = MaskSettings.model_validate({"name": "window", "before": 1, "after": 0}).build()
        >>> mask.dense((3, 3)).tolist()
        [[True, False, False], [True, True, False], [False, True, True]]
    """

    parts: ClassVar[Parts["MaskSettings"]] = Parts("mask")
    reads_vectors: ClassVar[bool] = False
    """Whether the mask follows from products of queries and earlier keys."""

    def build(self) -> Mask | None:
        """The mask; None if every query may attend to every key."""
        raise NotImplementedError(f"{type(self).__name__} does not implement `build`")


class NoMask(MaskSettings):
    """Every query may attend to every key that the model's own mask allows."""

    name: Literal["none"] = "none"

    def build(self) -> None:
        return None


class CausalSettings(MaskSettings):
    """See :func:`heedful.attention.masks.causal`."""

    name: Literal["causal"] = "causal"

    def build(self) -> Mask:
        return causal()


class WindowSettings(MaskSettings):
    """See :func:`heedful.attention.masks.window`; the first ``sinks`` keys are always allowed.

    Source: Beltagy et al. 2020, section 3.1; sinks: Xiao et al. 2024, "Efficient Streaming Language
    Models with Attention Sinks", section 3.2.
    """

    name: Literal["window"] = "window"
    before: int = Field(128, ge=0, le=MOST_POSITIONS)
    """Positions before the query."""
    after: int | None = Field(None, ge=0, le=MOST_POSITIONS)
    """Positions after the query; as many as before by default."""
    sinks: int = Field(0, ge=0, le=MOST_POSITIONS)
    """The number of first keys that every query may attend to."""

    def build(self) -> Mask:
        near = window(self.before, self.after)
        return near | sinks(self.sinks) if self.sinks else near


class BlockSettings(MaskSettings):
    """See :func:`heedful.attention.masks.block`."""

    name: Literal["block"] = "block"
    size: int = Field(128, ge=1, le=MOST_POSITIONS)
    """Positions of a block."""

    def build(self) -> Mask:
        return block(self.size)


Sizes = tuple[Annotated[int, Field(ge=1, le=MOST_POSITIONS)], ...]
"""Sizes of a grid's axes."""


class AxialSettings(MaskSettings):
    """See :func:`heedful.attention.masks.axial`."""

    name: Literal["axial"] = "axial"
    shape: Sizes = (16, 16)
    """Sizes of the grid's axes, such as rows and columns."""
    axis: int = Field(1, ge=0)
    """The axis that a query attends along, counted from 0."""

    def build(self) -> Mask:
        return axial(self.shape, self.axis)


class NeighbourhoodSettings(MaskSettings):
    """See :func:`heedful.attention.masks.neighbourhood`."""

    name: Literal["neighbourhood"] = "neighbourhood"
    shape: Sizes = (16, 16)
    """Sizes of the grid's axes, such as rows and columns."""
    radius: int = Field(3, ge=0, le=MOST_POSITIONS)
    """The largest difference of a coordinate."""
    shifted: bool = False
    """Whether neighbourhoods at a border are as large as others."""

    def build(self) -> Mask:
        return neighbourhood(self.shape, self.radius, shifted=self.shifted)


class TopBlocksSettings(MaskSettings):
    """See :class:`heedful.attention.masks.TopBlocks`; for causal dot-product attention.

    Source: Lu et al. 2025, section 2.2.
    """

    reads_vectors: ClassVar[bool] = True
    name: Literal["top-blocks"] = "top-blocks"
    size: int = Field(64, ge=1, le=MOST_POSITIONS)
    """Positions of a block."""
    count: int = Field(8, ge=1, le=MOST_POSITIONS)
    """The number of blocks that a query selects, its own included."""

    def build(self) -> Mask:
        return TopBlocks(self.size, self.count)


class _Built(MaskSettings):
    """The settings of a mask that a function builds."""

    def build(self) -> Mask:
        built: Mask = type(self).function()
        return built


def register_mask(name: str, build: Callable[[], Mask] | type[MaskSettings]) -> None:
    """Add a mask that recipes can name.

    Args:
        name: the name in recipes.
        build: builds it; or its settings, a subclass of :class:`MaskSettings`.

    Raises:
        UserError: the name is already registered.

    Example:
        >>> register_mask("of-mine", lambda: window(2))
        >>> MaskSettings.model_validate("of-mine").build().before
        2
        >>> del MaskSettings.parts["of-mine"]
    """
    MaskSettings.parts.add(name, build, _Built)


for _kind in (
    NoMask,
    CausalSettings,
    WindowSettings,
    BlockSettings,
    AxialSettings,
    NeighbourhoodSettings,
    TopBlocksSettings,
):
    MaskSettings.parts.add(str(_kind.model_fields["name"].default), _kind, _Built)


def both(own: Mask | None, mask: Mask | Tensor | None, grid: Grid) -> Mask | Tensor | None:
    """What both masks allow.

    Args:
        own: a mask; None allows all.
        mask: a mask or a tensor, as in :func:`heedful.attention.attend`.
        grid: the queries and keys.
    """
    if own is None or mask is None:
        return mask if own is None else own
    if isinstance(mask, Tensor) and mask.is_floating_point():
        return torch.where(own.allows(grid), mask, -torch.inf)
    return own & mask
