"""Draw weights as text, with shaded blocks for the terminal."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from rich.cells import cell_len

from heedful.basics.errors import UserError
from heedful.inference.axes import Axis
from heedful.viewing.labels import token_labels

BLOCKS = " ░▒▓█"
PLAIN_BLOCKS = " .:x#"


def render_alignment(
    weights: torch.Tensor,
    queries: Sequence[str],
    keys: Sequence[str],
    width: int = 80,
    *,
    plain: bool = False,
) -> str:
    """Draw `[Q, K]` weights as text.

    The label of a key is a flag above its column. The label of a query is at the end of its row, so
    that scripts of any direction and width stay aligned. Columns that do not fit are continued in
    another drawing below.

    Args:
        weights: `[Q, K]`.
        queries: tokens of the rows.
        keys: tokens of the columns.
        width: width of the terminal, in columns.
        plain: use ASCII only.

    Raises:
        UserError: the shape does not match the numbers of tokens.

    Example:
        >>> print(render_alignment(torch.tensor([[0.9, 0.1], [0.0, 1.0]]), ["das", "Haus"],
        ...     ["the", "house"], plain=True))
        , the
        | , house
        # . das
          # Haus
    """
    if list(weights.shape) != [len(queries), len(keys)]:
        raise UserError(
            f"weights of shape {list(weights.shape)} do not belong to {len(queries)} queries and "
            f"{len(keys)} keys"
        )
    rows, columns = token_labels(queries), token_labels(keys)
    flags = max((cell_len(label) for label in [*rows, *columns]), default=0)
    at_once = max((width - flags) // 2, 1)
    parts = [
        _part(weights[:, start : start + at_once], rows, columns[start : start + at_once], plain)
        for start in range(0, len(columns), at_once)
    ]
    return "\n\n".join(parts)


def render_rows(
    weights: torch.Tensor,
    queries: Sequence[str],
    axis: Axis,
    width: int = 80,
    *,
    plain: bool = False,
) -> str:
    """Draw `[Q, K]` weights over an axis of any kind as text.

    Over an image, each query has a block with two characters per cell. Along time, it has a line in
    which a character shows the largest weight of several frames. In both, the darkest character is
    the largest weight of the query. Other kinds are drawn by `render_alignment`.

    Args:
        weights: `[Q, K]`.
        queries: labels of the queries.
        axis: the axis of the keys.
        width: width of the terminal, in columns.
        plain: use ASCII only.

    Example:
        >>> print(render_rows(torch.tensor([[0.6, 0.1, 0.3, 0.0]]), ["a"], Axis("image",
        ...     extent=(2, 2)), plain=True))
        a
          |##..|
          |::  |
    """
    if axis.kind not in ("image", "time"):
        return render_alignment(weights, queries, axis.labels, width, plain=plain)
    labels = token_labels(queries)
    weights = weights.detach().float().cpu().abs()
    shares = weights / weights.amax(1, keepdim=True).clamp(min=1e-12)
    if axis.kind == "image":
        rows, columns = int(axis.extent[0]), int(axis.extent[1])
        side = "|" if plain else "│"
        shares = F.adaptive_max_pool2d(
            shares.view(-1, 1, rows, columns), (rows, min(columns, max((width - 4) // 2, 1)))
        )[:, 0]
        blocks = [
            "\n".join([label, *(f"  {side}{_shaded(row, plain, 2)}{side}" for row in own)])
            for label, own in zip(labels, shares, strict=True)
        ]
        return "\n".join(blocks)
    longest = max(map(cell_len, labels), default=0)
    shares = F.adaptive_max_pool1d(shares, min(shares.shape[1], max(width - longest - 1, 1)))
    lines = [f"{_shaded(own, plain, 1)} {label}" for label, own in zip(labels, shares, strict=True)]
    end = f"{axis.extent[1]:.2f} s"
    return "\n".join([*lines, "0 s" + end.rjust(max(shares.shape[1] - 3, len(end) + 1))])


def _shaded(shares: torch.Tensor, plain: bool, wide: int) -> str:
    blocks = PLAIN_BLOCKS if plain else BLOCKS
    levels = (shares * (len(blocks) - 1)).round().long().tolist()
    return "".join(blocks[level] * wide for level in levels)


def _part(weights: torch.Tensor, rows: list[str], columns: list[str], plain: bool) -> str:
    blocks = PLAIN_BLOCKS if plain else BLOCKS
    pole, corner = ("|", ",") if plain else ("│", "┌")
    lines = [f"{pole} " * place + f"{corner} {label}" for place, label in enumerate(columns)]
    # The row of a query without weights, which attends to nothing, is blank.
    shades = (weights.detach().float().cpu() * len(blocks)).long().clamp(0, len(blocks) - 1)
    # Small weights should be visible.
    faint = (shades == 0) & (weights.detach().float().cpu() >= 0.05)
    shades = shades + faint.long()
    for label, shade in zip(rows, shades.tolist(), strict=True):
        lines.append(" ".join(blocks[each] for each in shade) + f" {label}")
    return "\n".join(lines)
