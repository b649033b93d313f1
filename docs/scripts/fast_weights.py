"""How a matrix of associations grows: draws docs/images/fast-weights.png.

python docs/scripts/fast_weights.py

Five associations are written to a matrix, with the sum rule and with the delta rule. The fourth one
gives a new value to the key of the second. Both matrices are then read with that key.
"""

from pathlib import Path

import torch
from torch import Tensor

from heedful.attention.delta import delta_step
from heedful.viewing.figures import new_figure, save_figure

PICTURE = Path(__file__).parents[1] / "images" / "fast-weights.png"
WRITTEN = ("a → 1", "b → 3", "c → 5", "b → 2", "d → 4")
"""Key and value of each association: the values are places in a vector."""
KEYS, VALUES = 4, 6
ASKED = "b"


def vectors() -> tuple[Tensor, Tensor]:
    """Keys and values of the associations ``[5, 6]``; different keys are not quite orthogonal."""
    torch.manual_seed(3)
    own = torch.eye(VALUES)[:KEYS] + 0.15 * torch.randn(KEYS, VALUES)
    own = own / own.norm(dim=-1, keepdim=True)
    keys = torch.stack([own["abcd".index(one[0])] for one in WRITTEN])
    return keys, torch.eye(VALUES)[[int(one[-1]) for one in WRITTEN]]


def matrices() -> dict[str, list[Tensor]]:
    """The matrix ``[keys, values]`` after each association, by rule."""
    keys, values = vectors()
    found: dict[str, list[Tensor]] = {"sum rule": [], "delta rule": []}
    total, state = torch.zeros(VALUES, VALUES), None
    for key, value in zip(keys, values, strict=True):
        total = total + torch.outer(key, value)
        _, state = delta_step(key[None], key[None], value[None], torch.ones(1), state=state)
        found["sum rule"].append(total)
        found["delta rule"].append(state.S)
    return found


def read(matrix: Tensor) -> Tensor:
    """What the matrix holds for the key that was written twice."""
    key = vectors()[0][WRITTEN.index("b → 3")]
    return key @ matrix


def main() -> None:
    """Draw."""
    figure = new_figure(10, 4.4)
    columns = len(WRITTEN) + 1
    axes = figure.subplots(2, columns, gridspec_kw={"width_ratios": [1] * (columns - 1) + [1.3]})
    image = None
    for row, (rule, found) in enumerate(matrices().items()):
        for column, matrix in enumerate(found):
            ax = axes[row, column]
            image = ax.imshow(matrix, cmap="RdBu", vmin=-1.2, vmax=1.2)
            ax.set(xticks=[], yticks=[])
            if row == 0:
                ax.set_title(WRITTEN[column], fontsize=11)
        axes[row, 0].set_ylabel(rule, fontsize=11)
        last = axes[row, -1]
        last.bar(range(VALUES), read(found[-1]), color="#08306b")
        last.axhline(0, color="#888", linewidth=0.8)
        last.set(xticks=range(VALUES), yticks=(0, 1), ylim=(-0.4, 1.4))
        last.spines[["top", "right"]].set_visible(False)
    axes[0, -1].set_title(f"read with {ASKED}", fontsize=11)
    axes[1, -1].set_xlabel("value", fontsize=10)
    figure.subplots_adjust(left=0.04, right=0.9, top=0.9, bottom=0.12, wspace=0.2, hspace=0.15)
    assert image is not None
    bar = figure.colorbar(image, cax=figure.add_axes((0.92, 0.2, 0.012, 0.6)))
    bar.ax.tick_params(labelsize=9)
    save_figure(figure, PICTURE, resolution=110)


if __name__ == "__main__":
    main()
