"""Settings of all tests, and optionally different random numbers.

Files are not forced to the disk (``disk_help``).

If HEEDFUL_TEST_SEED is an integer, it is added to every seed that a test passes to
``torch.manual_seed`` or to a ``torch.Generator``. Seeds set by the library, such as that of a
recipe, do not change.

Property tests draw the same examples in every run, and others with HEEDFUL_TEST_SEED.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import settings

from disk_help import without_waiting

OFFSET = int(os.environ.get("HEEDFUL_TEST_SEED") or 0)
_seed_all = torch.manual_seed


def shifted(seed: int) -> int:
    """The seed, plus the offset if the caller's caller is a test."""
    caller = Path(sys._getframe(2).f_code.co_filename)
    return seed + OFFSET if caller.parent == Path(__file__).parent else seed


def manual_seed(seed: int) -> torch.Generator:
    return _seed_all(shifted(seed))


class ShiftedGenerator(torch.Generator):
    def manual_seed(self, seed: int) -> Any:
        return super().manual_seed(shifted(seed))


if OFFSET:
    torch.manual_seed = manual_seed
    torch.Generator = ShiftedGenerator  # type: ignore[misc]


os.fsync = without_waiting(os.fsync)

settings.register_profile("heedful", derandomize=not OFFSET)
settings.load_profile("heedful")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    if OFFSET:
        config.option.hypothesis_seed = str(OFFSET)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One worker more than there are cores: a test often waits for a browser or another process."""
    return (os.cpu_count() or 1) + 1


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Leave what is imported and collected, a million objects, out of all garbage collections.

    Each of them would take a second.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Name parameters of type bytes by their argument: archives contain a time stamp, but all
    workers of a parallel run must collect the same names."""
    return argname if isinstance(val, bytes) else None


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """A browser for the tests of the page."""
    from page_help import browser

    with browser() as one:
        yield one
