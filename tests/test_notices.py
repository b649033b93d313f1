"""Notices with counts."""

import pytest

from heedful.basics.notices import (
    counted_notice,
    notice,
    summed,
    without_notices,
    without_repeats,
)


class Cutter:
    def write(self, cut: int, texts: int) -> str:
        return f"{cut} of {texts} texts are cut"


def test_counts_are_summed_and_said_once_at_the_end() -> None:
    said: list[str] = []
    cutter, other = Cutter(), Cutter()
    counted_notice(said.append, cutter.write, 1, 2)
    counted_notice(said.append, cutter.write, 0, 2)
    assert said == ["1 of 2 texts are cut"]
    with summed():
        counted_notice(said.append, cutter.write, 0, 64)
        with summed():
            counted_notice(said.append, cutter.write, 3, 64)
            counted_notice(said.append, other.write, 0, 9)
        counted_notice(said.append, cutter.write, 2, 1)
        assert len(said) == 1
    assert said[1:] == ["5 of 129 texts are cut"]
    counted_notice(said.append, cutter.write, 1, 1)
    assert said[2:] == ["1 of 1 texts are cut"]


def test_they_are_said_if_the_work_fails() -> None:
    said: list[str] = []

    def work() -> None:
        with summed():
            counted_notice(said.append, Cutter().write, 1, 2)
            raise ValueError("bad")

    with pytest.raises(ValueError, match="bad"):
        work()
    assert said == ["1 of 2 texts are cut"]


def test_equal_notices_are_printed_once(capsys: pytest.CaptureFixture[str]) -> None:
    with without_repeats():
        for line in ("a", "b", "a"):
            notice(line)
    with without_notices():
        notice("c")
    notice("a")
    assert capsys.readouterr().err == "heedful: a\nheedful: b\nheedful: a\n"
