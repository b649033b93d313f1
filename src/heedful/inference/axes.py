"""Axes of traces. An axis is of a kind, which says how views draw it; views know no models."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from heedful.inference.media import PNG, WAV, Media

_MOST_PLACES = 1 << 20
_TOLERANCE = 0.05
"""By how much of its length a sound may differ from its axis; at least a tenth of a second."""


class AxisKind(NamedTuple):
    """A kind of axis: what its places are named, and what may lie under them."""

    name: str
    extent: tuple[str, ...] = ()
    """What the numbers of its extent are; without any, an axis has labels."""
    count: Callable[[tuple[float, ...]], int] = lambda extent: 0
    """How many places an extent has."""
    label: Callable[[tuple[float, ...], int], str] = lambda extent, place: str(place + 1)
    """What a place of an extent is called."""
    media: tuple[str, ...] = ()
    """Types of media that it takes."""


_kinds: dict[str, AxisKind] = {}


def _cell(place: int, columns: int) -> tuple[int, int]:
    return place // columns + 1, place % columns + 1


def register_axis_kind(kind: AxisKind) -> None:
    """Add a kind of axis. Views without a drawing of their own for it show its labels."""
    _kinds[kind.name] = kind


for _kind in (
    AxisKind("tokens"),
    AxisKind("labels"),
    AxisKind("slots"),
    AxisKind(
        "image",
        ("rows", "columns"),
        lambda extent: int(extent[0]) * int(extent[1]),
        lambda extent, place: "row {} column {}".format(*_cell(place, int(extent[1]))),
        (PNG,),
    ),
    AxisKind(
        "time",
        ("frames", "seconds"),
        lambda extent: int(extent[0]),
        lambda extent, place: f"{place * extent[1] / extent[0]:.2f} s",
        (WAV, PNG),
    ),
):
    register_axis_kind(_kind)


@dataclass(frozen=True)
class Axis:
    """Places that are attended from or to, in their order.

    Args:
        kind: ``tokens``, ``labels`` or ``slots`` (places of a memory), which have labels;
            ``image``, whose extent is (rows, columns) of cells, row by row; ``time``, whose extent
            is (frames, seconds); or a kind of :func:`register_axis_kind`.
        labels: a text for each place; not with an extent.
        extent: of an image or of time.
        media: the picture under an image's cells; the sound, or a picture of its features with time
            from left to right, under a time axis.
        steps: whether its places come one after the other, as decoding steps, hops and glimpses do.

    Raises:
        ValueError: the kind is unknown, or the rest does not fit it.

    Example:
        >>> Axis("image", extent=(2, 2)).labels[1]
        'row 1 column 2'
    """

    kind: str
    labels: list[str] = field(default_factory=list)
    extent: tuple[float, ...] = ()
    media: Media | None = None
    steps: bool = False

    def __post_init__(self) -> None:
        if self.kind not in _kinds:
            raise ValueError(
                f"unknown kind of axis '{self.kind}'; known kinds are {', '.join(_kinds)}"
            )
        kind = _kinds[self.kind]
        if kind.extent:
            self._take_extent(kind)
        elif self.extent:
            raise ValueError(f"an axis of kind '{self.kind}' has labels instead of an extent")
        if self.media is not None and self.media.type not in kind.media:
            raise ValueError(
                f"an axis of kind '{self.kind}' takes {' or '.join(kind.media) or 'no media'}, "
                f"not {self.media.type}"
            )
        if self.media is not None and self.media.type == WAV:
            own, heard = self.extent[1], self.media.seconds
            if abs(own - heard) > max(0.1, _TOLERANCE * own):
                raise ValueError(
                    f"a time axis of {own:.2f} s does not match its sound of {heard:.2f} s"
                )

    def _take_extent(self, kind: AxisKind) -> None:
        names = ", ".join(kind.extent)
        if len(self.extent) != len(kind.extent):
            raise ValueError(f"the extent of an axis of kind '{self.kind}' must be ({names})")
        if not all(math.isfinite(one) and one > 0 for one in self.extent):
            raise ValueError(
                f"the extent {self.extent} of an axis of kind '{self.kind}' must be above 0"
            )
        whole = [
            one for one, name in zip(self.extent, kind.extent, strict=True) if name != "seconds"
        ]
        if any(one != int(one) for one in whole) or kind.count(self.extent) > _MOST_PLACES:
            raise ValueError(
                f"the extent {self.extent} of an axis of kind '{self.kind}' must be ({names})"
            )
        count = kind.count(self.extent)
        labels = [kind.label(self.extent, place) for place in range(count)]
        if self.labels and self.labels != labels:
            raise ValueError(f"an axis of kind '{self.kind}' has an extent instead of labels")
        object.__setattr__(self, "labels", labels)

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def is_extended(self) -> bool:
        """Whether it has an extent, from which its labels follow."""
        return bool(self.extent)

    @classmethod
    def of(cls, given: "Axis | Sequence[str]") -> "Axis":
        """An axis as it is, or one of tokens."""
        return given if isinstance(given, Axis) else cls("tokens", list(given))

    def to_json(self) -> dict[str, Any]:
        """All but the media's bytes."""
        places = {"extent": list(self.extent)} if self.is_extended else {"labels": self.labels}
        media = None if self.media is None else self.media.type
        return {"kind": self.kind, **places, "media": media, "steps": self.steps}

    @classmethod
    def from_json(cls, found: dict[str, Any], data: bytes) -> "Axis":
        """What :meth:`to_json` gave, and the media's bytes.

        Raises:
            ValueError, KeyError, TypeError: it is damaged.
        """
        media = None if found["media"] is None else Media(str(found["media"]), data)
        labels = [str(one) for one in found.get("labels", [])]
        extent = tuple(float(one) for one in found.get("extent", []))
        return cls(str(found["kind"]), labels, extent, media, bool(found["steps"]))
