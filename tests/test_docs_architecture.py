"""The picture and the tables of docs/architecture.md against pyproject.toml."""

import re
import tomllib
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
REDRAW = "run python docs/scripts/architecture_picture.py"


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    """The tables of pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_the_picture_shows_the_rooms_in_their_order(project: dict[str, Any]) -> None:
    (contract,) = project["tool"]["importlinter"]["contracts"]
    page = (DOCS / "architecture.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)
    assert rows == contract["layers"], "the table of rooms in docs/architecture.md"
    picture = ElementTree.parse(DOCS / "images" / "architecture.svg").getroot()
    texts = picture.iter("{http://www.w3.org/2000/svg}text")
    drawn = [text.text for text in texts if text.get("class") == "room"]
    assert drawn == contract["layers"], REDRAW


def test_the_architecture_is_two_screens() -> None:
    page = (DOCS / "architecture.md").read_text(encoding="utf-8")
    assert len(page.splitlines()) <= 110


def test_every_dependency_has_a_reason(project: dict[str, Any]) -> None:
    extras = project["project"]["optional-dependencies"]
    needed = [*project["project"]["dependencies"]]
    for name in extras.keys() - {"lint"}:
        needed += extras[name]
    page = (DOCS / "dependencies.md").read_text(encoding="utf-8")
    cells = [line.split("|")[1] for line in page.splitlines() if line.startswith("|")]
    named = set(re.findall(r"[\w.-]+", " ".join(cells)))
    names = {re.split(r"[<>=!~ ;\[]", one)[0] for one in needed}
    assert names <= named


def test_every_decision_is_in_the_index() -> None:
    folder = DOCS / "decisions"
    index = (folder / "README.md").read_text(encoding="utf-8")
    listed = dict(re.findall(r"^\| \[\d+\]\(([\w.-]+)\) \| (.*) \|$", index, re.MULTILINE))
    titles = {
        path.name: path.read_text(encoding="utf-8").splitlines()[0].partition(": ")[2]
        for path in folder.glob("[0-9]*.md")
    }
    assert listed == titles
