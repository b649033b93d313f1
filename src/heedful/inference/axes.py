"""Axes of traces. The kind of an axis determines how views draw it; views know no models."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from heedful.inference.media import PNG, WAV, Media

_MOST_PLACES = 1 << 20
_TOLERANCE = 0.05
"""By how much of its length a sound may differ from its axis; at least a tenth of a second."""


class AxisKind(NamedTuple):
    """A kind of axis: how its positions are labelled, and which media it accepts."""

    name: str
    extent: tuple[str, ...] = ()
    """The names of the numbers of its extent; if empty, an axis has labels."""
    count: Callable[[tuple[float, ...]], int] = lambda extent: 0
    """Extent → number of positions."""
    label: Callable[[tuple[float, ...], int], str] = lambda extent, place: str(place + 1)
    """Extent and position → label."""
    media: tuple[str, ...] = ()
    """The accepted types of media."""


_kinds: dict[str, AxisKind] = {}


def _cell(place: int, columns: int) -> tuple[int, int]:
    return place // columns + 1, place % columns + 1


def register_axis_kind(kind: AxisKind) -> None:
    """Add a kind of axis. Views that have no drawing for it show its labels."""
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
        "frames",
        ("frames",),
        lambda extent: int(extent[0]),
        lambda extent, place: f"frame {place + 1}",
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
    """Positions that attend or are attended to, in order.

    Args:
        kind: ``tokens``, ``labels`` or ``slots`` (of a memory), which have labels;
            ``image``, whose extent is (rows, columns) of cells, row by row; ``frames`` of a clip,
            whose extent is (frames,); ``time``, whose extent is (frames, seconds); or a kind of
            :func:`register_axis_kind`.
        labels: a text for each position; not with an extent.
        extent: of an image or of time.
        media: the picture of an image axis; the frames of a clip beside each other; the sound of a
            time axis, or a picture of its features with time from left to right.
        steps: whether its positions are consecutive steps, such as decoding steps, hops or
            glimpses.

    Raises:
        ValueError: the kind is unknown, or the other arguments do not match it.

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
        """Whether it has an extent, from which its labels are made."""
        return bool(self.extent)

    @classmethod
    def of(cls, given: "Axis | Sequence[str]") -> "Axis":
        """Return an axis unchanged; make an axis of tokens from texts."""
        return given if isinstance(given, Axis) else cls("tokens", list(given))

    def to_json(self) -> dict[str, Any]:
        """All fields except the bytes of the media."""
        places = {"extent": list(self.extent)} if self.is_extended else {"labels": self.labels}
        media = None if self.media is None else self.media.type
        return {"kind": self.kind, **places, "media": media, "steps": self.steps}

    @classmethod
    def from_json(cls, found: dict[str, Any], data: bytes) -> "Axis":
        """Build an axis from the result of :meth:`to_json` and the bytes of the media.

        Raises:
            ValueError, KeyError, TypeError: the data are damaged.
        """
        media = None if found["media"] is None else Media(str(found["media"]), data)
        labels = [str(one) for one in found.get("labels", [])]
        extent = tuple(float(one) for one in found.get("extent", []))
        return cls(str(found["kind"]), labels, extent, media, bool(found["steps"]))
