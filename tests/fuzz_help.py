"""Random cases for the functions of the C code: shapes, memory layouts, masks, extreme numbers."""

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
"""Beside the lengths of vectors, tiles and panels."""
NOT_FINITE = (math.nan, -math.nan, math.inf, -math.inf)


class Draw:
    """What a case is made of."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        torch.manual_seed(seed)

    def size(self, most: int = 100) -> int:
        return self.random.choice([size for size in SIZES if size <= most])

    def rows(self, most: int = 40) -> int:
        """Sometimes none."""
        return self.random.choice([0, 1, 2, 5, self.random.randint(1, most)])

    def scale(self) -> float:
        return self.random.choice([1.0, 1.0, 1.0, 30.0, 1e-3, 1e-30, 1e-42])

    def numbers(self, *shape: int, scale: float = 1.0, dense: bool = False) -> Tensor:
        """Random numbers that lie in memory in one of several ways."""
        return self.placed(torch.randn(shape) * scale, dense)

    def placed(self, numbers: Tensor, dense: bool = False) -> Tensor:
        """The same numbers with an offset, with gaps between rows, or with other strides."""
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
        """The same numbers with a gap of NaN after each row."""
        return F.pad(rows, (0, 3), value=math.nan)[..., :-3]

    def mask(self, *shape: int) -> Tensor:
        share = self.random.choice([0.0, 0.3, 0.7, 1.0])
        return torch.rand(shape) < share

    def threads(self, monkeypatch: pytest.MonkeyPatch, *modules: Any) -> None:
        """One or three, for the smallest work too."""
        count = self.random.choice([1, 3])
        monkeypatch.setattr(torch, "get_num_threads", lambda: count)
        for module in modules:
            monkeypatch.setattr(module, "_SMALL", 0)

    def spoiled(self, rows: Tensor) -> tuple[Tensor, int]:
        """A copy in which one number of a row is not finite, and which row that is."""
        row, other = (
            self.random.randrange(len(rows)),
            rows.clone(memory_format=torch.contiguous_format),
        )
        own = other[row].flatten()
        own[self.random.randrange(len(own))] = self.random.choice(NOT_FINITE)
        other[row] = own.view(other[row].shape)
        return other, row


def assert_others_equal(found: Tensor, clean: Tensor, row: int) -> None:
    """What is not finite in a row stays in it."""
    others = torch.arange(len(clean)) != row
    assert torch.equal(found[others], clean[others])


def doubled(*parts: Tensor) -> list[Tensor]:
    return [part.detach().double().requires_grad_() for part in parts]
