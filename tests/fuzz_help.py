"""Random cases for the C functions: shapes, memory layouts, masks, extreme values."""

import math
import os
import random
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

CASES = int(os.environ.get("HEEDFUL_FUZZ") or 12)
each_case = pytest.mark.parametrize("seed", range(CASES))

SIZES = [1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 47, 48, 63, 64, 65, 100]
"""Sizes around the widths of vectors, tiles and panels."""
NOT_FINITE = (math.nan, -math.nan, math.inf, -math.inf)


class Draw:
    """Draws the parts of a case."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        torch.manual_seed(seed)

    def size(self, most: int = 100) -> int:
        return self.random.choice([size for size in SIZES if size <= most])

    def rows(self, most: int = 40) -> int:
        """A number of rows, sometimes 0."""
        return self.random.choice([0, 1, 2, 5, self.random.randint(1, most)])

    def scale(self) -> float:
        return self.random.choice([1.0, 1.0, 1.0, 30.0, 1e-3, 1e-30, 1e-42])

    def numbers(self, *shape: int, scale: float = 1.0, dense: bool = False) -> Tensor:
        """Random values with one of several memory layouts."""
        return self.placed(torch.randn(shape) * scale, dense)

    def placed(self, numbers: Tensor, dense: bool = False) -> Tensor:
        """The same values with an offset, with gaps between rows, or with other strides."""
        offset = self.random.randint(0, 3)
        flat = torch.full((offset + numbers.numel(),), math.nan)
        ways = ["offset"] if dense or numbers.dim() < 2 else ["offset", "gaps", "turned"]
        way = self.random.choice(ways)
        if way == "gaps":
            return self.apart(numbers)
        if way == "turned":
            return numbers.transpose(0, -2).contiguous().transpose(0, -2)
        flat[offset:] = numbers.flatten()
        return flat[offset:].view(numbers.shape)

    def apart(self, rows: Tensor) -> Tensor:
        """The same values with a gap of NaN after each row."""
        return F.pad(rows, (0, 3), value=math.nan)[..., :-3]

    def mask(self, *shape: int) -> Tensor:
        share = self.random.choice([0.0, 0.3, 0.7, 1.0])
        return torch.rand(shape) < share

    def threads(self, monkeypatch: pytest.MonkeyPatch, *modules: Any) -> None:
        """Use one or three threads, also for the smallest cases."""
        count = self.random.choice([1, 3])
        monkeypatch.setattr(torch, "get_num_threads", lambda: count)
        for module in modules:
            monkeypatch.setattr(module, "_SMALL", 0)

    def spoiled(self, rows: Tensor) -> tuple[Tensor, int]:
        """A copy with an infinite or NaN value in one row, and the index of this row."""
        row, other = (
            self.random.randrange(len(rows)),
            rows.clone(memory_format=torch.contiguous_format),
        )
        own = other[row].flatten()
        own[self.random.randrange(len(own))] = self.random.choice(NOT_FINITE)
        other[row] = own.view(other[row].shape)
        return other, row


def assert_others_equal(found: Tensor, clean: Tensor, row: int) -> None:
    """Check that infinite or NaN values do not affect other rows."""
    others = torch.arange(len(clean)) != row
    assert torch.equal(found[others], clean[others])


def doubled(*parts: Tensor) -> list[Tensor]:
    return [part.detach().double().requires_grad_() for part in parts]
