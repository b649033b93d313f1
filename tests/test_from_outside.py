"""heedful.attention from outside: the examples, as somebody runs them who uses nothing else."""

import re
from pathlib import Path

import pytest

from command_help import run_command

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_examples_are_short_and_import_the_attention_room_alone(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 30
    ours = re.findall(r"^\s*(?:from|import) (heedful\S*)", text, re.MULTILINE)
    assert ours == ["heedful.attention"]


def test_the_page_shows_the_example() -> None:
    page = (ROOT / "docs" / "attention.md").read_text(encoding="utf-8")
    example = (ROOT / "examples" / "attention_classifier.py").read_text(encoding="utf-8")
    assert f"```python\n{example}```\n" in page
    assert f"in {len(example.splitlines())} lines" in page


def test_a_classifier_in_plain_pytorch_learns(tmp_path: Path) -> None:
    """Over 99 %, as the page says; somewhere else, so that nothing is found by its place."""
    example = ROOT / "examples" / "attention_classifier.py"
    done = run_command(cwd=tmp_path, program=example)
    assert done.returncode == 0, done.stderr
    found = re.match(r"(\d+\.\d)% of 2560 new sequences right\n$", done.stdout)
    assert found is not None, done.stdout
    assert float(found[1]) > 99
