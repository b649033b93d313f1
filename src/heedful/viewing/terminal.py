"""An alignment as text: shaded blocks, rows of queries, columns of keys."""

from collections.abc import Sequence

import torch
from rich.cells import cell_len

from heedful.basics.errors import UserError
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
    """Draw `[Q, K]` weights with characters.

    Each key's name stands at the top of its column like a flag, each query's name at the end of its
    row, so that scripts of any direction and width stay in line. Where the columns do not fit,
    they go on in a second picture below.

    Args:
        weights: `[Q, K]`.
        queries: the rows' tokens.
        keys: the columns' tokens.
        width: of the terminal, in columns.
        plain: use ASCII only.

    Raises:
        UserError: the weights' shape is not that of the tokens.

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


def _part(weights: torch.Tensor, rows: list[str], columns: list[str], plain: bool) -> str:
    blocks = PLAIN_BLOCKS if plain else BLOCKS
    pole, corner = ("|", ",") if plain else ("│", "┌")
    lines = [f"{pole} " * place + f"{corner} {label}" for place, label in enumerate(columns)]
    # A query of zero weights (it may attend to nothing) stays blank.
    shades = (weights.detach().float().cpu() * len(blocks)).long().clamp(0, len(blocks) - 1)
    # A weight that is there at all should be seen.
    faint = (shades == 0) & (weights.detach().float().cpu() >= 0.05)
    shades = shades + faint.long()
    for label, shade in zip(rows, shades.tolist(), strict=True):
        lines.append(" ".join(blocks[each] for each in shade) + f" {label}")
    return "\n".join(lines)
