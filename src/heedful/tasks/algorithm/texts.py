"""Vectors and bits as text."""

from torch import Tensor

from heedful.basics.errors import UserError


def bit_texts(bits: Tensor) -> list[str]:
    """``[A, O]`` of 0 and 1, or of truth values: a text of digits for each row.

    Example:
        >>> import torch
        >>> bit_texts(torch.tensor([[0, 1, 1], [1, 0, 0]]))
        ['011', '100']
    """
    return ["".join("1" if one else "0" for one in row) for row in bits.tolist()]


def vector_texts(vectors: Tensor) -> list[str]:
    """``[T, I]``: a text for each row; digits without spaces if all its numbers are 0 or 1.

    Example:
        >>> import torch
        >>> vector_texts(torch.tensor([[0.0, 1.0], [0.5, -1.0]]))
        ['01', '0.5 -1']
    """
    return [_text(row) for row in vectors.tolist()]


def _text(row: list[float]) -> str:
    if all(one in (0, 1) for one in row):
        return "".join(str(int(one)) for one in row)
    return " ".join(f"{one:.3g}" for one in row)


def read_vector(text: str, width: int, where: str) -> list[float]:
    """The numbers of a text as :func:`vector_texts` writes it.

    Raises:
        UserError: it has other than ``width`` numbers, or one is not a finite number.
    """
    parts = text.split()
    if len(parts) == 1 and width > 1 and set(parts[0]) <= {"0", "1"}:
        parts = list(parts[0])
    try:
        found = [float(one) for one in parts]
    except ValueError as error:
        raise UserError(f"{where}: '{text}' is not a list of numbers") from error
    if len(found) != width:
        raise UserError(f"{where}: {len(found)} numbers, but the model reads {width}")
    if any(abs(one) > 1e6 or one != one for one in found):
        raise UserError(f"{where}: '{text}' has a number that is not between -1e6 and 1e6")
    return found
