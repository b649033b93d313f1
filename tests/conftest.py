"""What holds for every test."""

from __future__ import annotations


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """A parameter of bytes is named by its argument: packed bytes hold the time of packing, and
    the workers of a parallel run must all collect the same names."""
    return argname if isinstance(val, bytes) else None
