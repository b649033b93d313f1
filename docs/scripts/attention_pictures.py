"""Weights as small pictures: SVG, written as text, so that they are crisp and easy to compare."""

from attention_toy import WORDS, Toy
from torch import Tensor

CELL = 28
_LEFT, _TOP, _GAP = 40, 16, 12
_FONT = 'font-family="Helvetica, Arial, DejaVu Sans, sans-serif" font-size="11"'
_LIGHT, _DARK = (255, 255, 255), (8, 48, 107)
_MASKED = "#d9d9d9"


def picture(toy: Toy) -> str:
    """The maps of a toy below one another: a row for each query, its weights in the cells.

    Grey and crossed out: masked. White without a number: exactly 0.
    """
    tall = CELL * len(toy.rows) + _GAP
    width, height = _LEFT + CELL * len(WORDS) + 2, _TOP + len(toy.weights) * tall - _GAP + 2
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" {_FONT}>',
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
    ]
    for column, word in enumerate(WORDS):
        parts.append(_text(_LEFT + CELL * column + CELL // 2, _TOP - 5, word))
    for number, weights in enumerate(toy.weights):
        top = _TOP + number * tall
        for row, word in enumerate(toy.rows):
            parts.append(_text(_LEFT - 5, top + CELL * row + CELL // 2 + 4, word, anchor="end"))
        allowed = None if toy.allowed is None else toy.allowed[number]
        parts += _cells(weights, allowed, top)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _cells(weights: Tensor, allowed: Tensor | None, top: int) -> list[str]:
    parts = []
    for row, line in enumerate(weights.tolist()):
        for column, weight in enumerate(line):
            x, y = _LEFT + CELL * column, top + CELL * row
            masked = allowed is not None and not allowed[row, column]
            fill = _MASKED if masked else _shade(weight)
            parts.append(
                f'<rect x="{x}" y="{y}" width="{CELL}" height="{CELL}" '
                f'fill="{fill}" stroke="#bbb"/>'
            )
            if masked:
                parts.append(
                    f'<path d="M{x} {y + CELL}L{x + CELL} {y}" stroke="#999" fill="none"/>'
                )
            elif weight != 0:
                colour = "#fff" if weight > 0.5 else "#000"
                middle = x + CELL // 2, y + CELL // 2 + 4
                parts.append(_text(*middle, two_digits(weight), colour=colour))
    return parts


def two_digits(weight: float) -> str:
    return f"{weight:.2f}".removeprefix("0")


def _shade(weight: float) -> str:
    share = round(min(1.0, max(0.0, weight)), 2)
    mixed = (round(a + (b - a) * share) for a, b in zip(_LIGHT, _DARK, strict=True))
    return "#" + "".join(f"{part:02x}" for part in mixed)


def _text(x: float, y: float, text: str, anchor: str = "middle", colour: str = "#000") -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}" fill="{colour}">{text}</text>'
