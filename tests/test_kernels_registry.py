"""The registry of compiled operations is complete, tested and documented."""

import re
from pathlib import Path

import pytest
import torch

from heedful.kernels import compiling
from heedful.kernels.registry import OPERATIONS, Operation, table

ROOT = Path(__file__).parents[1]


def test_the_documentation_contains_the_registrys_table() -> None:
    page = (ROOT / "docs" / "kernels.md").read_text(encoding="utf-8")
    found = re.search(r"<!-- heedful\.kernels\.registry -->\n(.*)\n<!-- end -->", page, re.DOTALL)
    assert found is not None
    assert found[1] == table()


@pytest.mark.parametrize("one", OPERATIONS, ids=lambda one: one.name)
def test_every_operation_has_a_test_that_runs_under_sanitizers(one: Operation) -> None:
    assert (ROOT / "tests" / one.test).is_file()
    listed = re.search(r"SANITIZED := (.*?)\nsanitize:", (ROOT / "Makefile").read_text(), re.DOTALL)
    assert listed is not None
    name = one.test.removeprefix("test_").removesuffix(".py")
    assert not one.libraries or name in re.split(r"[\s,)\\]+", listed[1])
    for operator in one.operators:
        assert hasattr(torch.ops.heedful, operator)
        assert hasattr(torch.ops.heedful, f"{operator}_backward") or operator == "dropout"


def test_every_c_file_and_operator_belongs_to_an_operation() -> None:
    """The name of a library begins with the name of its C file."""
    libraries = [library() for one in OPERATIONS for library in one.libraries]
    if None in libraries:
        pytest.skip("there is no C compiler here")
    loaded = {Path(one._name).name.rsplit("-", 2)[0] for one in libraries if one is not None}
    assert loaded == {file.stem for file in compiling.SOURCES.glob("*.c")}
    named = {name for one in OPERATIONS for name in one.operators}
    schemas = torch._C._jit_get_all_schemas()
    ours = {one.name.partition("::")[2] for one in schemas if one.name.startswith("heedful::")}
    assert {name.removesuffix("_backward") for name in ours} == named
