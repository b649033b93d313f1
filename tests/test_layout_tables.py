"""The tables of docs/interop.md against the code: every layout describes itself."""

import re
from collections.abc import Mapping
from pathlib import Path

import pytest
import transformers

from heedful.interop import exporting, importing
from heedful.interop.layout_tables import export_rows, import_rows, with_tables
from heedful.tasks.spec import spec_named, specs

PAGE = Path(__file__).parents[1] / "docs" / "interop.md"


def test_the_page_has_the_current_tables() -> None:
    """If this fails: python docs/scripts/layouts_page.py."""
    text = PAGE.read_text(encoding="utf-8")
    assert with_tables(text) == text
    with pytest.raises(ValueError, match="no marks"):
        with_tables("nothing")


def test_every_layout_describes_what_it_imports() -> None:
    described = {kind for row in import_rows() for kind in row.model_types}
    assert described == set(importing._LAYOUTS)
    for row in import_rows():
        assert spec_named(re.split("[;,]", row.task)[0])
        for name in row.classes:
            kind = getattr(transformers, name).config_class.model_type
            assert kind in row.model_types, name


def test_every_layout_describes_what_it_exports() -> None:
    described = {row.layout for row in export_rows()}
    assert described == set(exporting.LAYOUTS)
    none: Mapping[str, str] = {}
    used = {
        layout for spec in specs() for layout in spec.exporters.get("huggingface", none).values()
    }
    assert used == described
