"""The size of functions, and that what iterates over tasks asks for no kind of run or recipe."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[1] / "src" / "heedful"
MOST_LINES = 50
"""Of a function, without its docstring."""
FACES = ("cli", "evaluation", "interop", "api.py", "runs/summary.py", "training/tuning.py")
KINDS = ("Recipe", "Run", "Spec", "Translator", "Classifier", "Tagger", "FillMask", "Generator")
"""The last word of a class that says what task something is of."""


def _functions(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Each function's name and its lines of code."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if ast.get_docstring(node) is not None:
                told = node.body[0]
                lines -= (told.end_lineno or told.lineno) - told.lineno + 1
            yield node.name, lines


def _asked(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Where ``isinstance`` asks for a kind of task, and for which."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "id", None) == "isinstance":
            for name in ast.walk(node.args[1]):
                # Recipe itself stands for any task's.
                if isinstance(name, ast.Name) and name.id.endswith(KINDS) and name.id != "Recipe":
                    yield node.lineno, name.id


def test_functions_fit_on_a_screen() -> None:
    found = {}
    for file in sorted(SOURCE.rglob("*.py")):
        for name, lines in _functions(ast.parse(file.read_text(encoding="utf-8"))):
            if lines > MOST_LINES:
                found[f"{file.relative_to(SOURCE).as_posix()}:{name}"] = lines
    assert not found, f"more than {MOST_LINES} lines: cut {found}"


@pytest.mark.parametrize("place", FACES)
def test_faces_ask_for_no_kind_of_task(place: str) -> None:
    root = SOURCE / place
    for file in [root] if root.is_file() else sorted(root.rglob("*.py")):
        asked = list(_asked(ast.parse(file.read_text(encoding="utf-8"))))
        assert not asked, f"{file.relative_to(SOURCE)}: {asked}"


def test_both_are_noticed() -> None:
    long = "def long():\n" + "    x = 1\n" * MOST_LINES
    assert list(_functions(ast.parse(long))) == [("long", MOST_LINES + 1)]
    asks = "if isinstance(run, PairRun | int) or isinstance(x, Recipe):\n    pass\n"
    assert list(_asked(ast.parse(asks))) == [(1, "PairRun")]
