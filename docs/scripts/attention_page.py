"""Makes the pictures of docs/attention.md, and measures its figures into the page.

python docs/scripts/attention_page.py             all of it; takes a minute
python docs/scripts/attention_page.py pictures    these alone; or costs, or errors
"""

import re
import sys
from pathlib import Path

from attention_costs import cost
from attention_errors import error_table
from attention_mechanisms import mechanisms
from attention_pictures import picture

DOCS = Path(__file__).parents[1]
PAGE = DOCS / "attention.md"
ROW = re.compile(
    r"^(\|.*)\|([^|]*)\|([^|]*)\|([^|]*\]\(images/attention-([\w-]+)\.svg\) \|)$", re.M
)
"""A row of the table: what goes before, its FLOP, its MiB, its picture, and the picture's key."""
ERRORS = re.compile(r"(?<=<!-- errors -->\n).*?(?=<!-- end -->)", re.S)


def make_pictures() -> None:
    for key, mechanism in mechanisms().items():
        path = DOCS / "images" / f"attention-{key}.svg"
        path.write_text(picture(mechanism.toy()), encoding="utf-8")


def costs_of(key: str) -> tuple[str, str]:
    """The numbers of FLOP and of MiB (moved, held, kept) as the table has them."""
    mechanism = mechanisms()[key]
    found = cost(mechanism.forward, mechanism.parts.parameters())
    return f"{found.flop:.0f}", " · ".join(map(short, (found.moved, found.held, found.kept)))


def short(number: float) -> str:
    if number < 0.05:
        return "0"
    return f"{number:.0f}" if number >= 10 else f"{number:.1f}"


def measure_costs(page: str) -> str:
    def measured(row: re.Match[str]) -> str:
        before, flop, _, shown, key = row.groups()
        counted, moved = costs_of(key)
        formula = flop.partition("=")[0].strip()
        return f"{before}| {formula} = {counted} | {moved} |{shown}"

    return ROW.sub(measured, page)


def main(wanted: list[str]) -> None:
    if not wanted or "pictures" in wanted:
        make_pictures()
    page = PAGE.read_text(encoding="utf-8")
    if not wanted or "costs" in wanted:
        page = measure_costs(page)
    if not wanted or "errors" in wanted:
        page = ERRORS.sub(lambda _: error_table(), page)
    PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
