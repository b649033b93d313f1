"""Writes the tables of docs/interop.md, as the layouts describe themselves.

python docs/scripts/layouts_page.py
"""

from pathlib import Path

from heedful.interop.layout_tables import with_tables

PAGE = Path(__file__).parents[1] / "interop.md"

if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
