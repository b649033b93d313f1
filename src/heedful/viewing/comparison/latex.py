"""The report's tables of numbers in LaTeX, with booktabs."""

from collections.abc import Mapping
from typing import Any

from heedful.viewing.comparison.sections import Section, sections_of

_SPECIAL = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": "$<$",
    ">": "$>$",
    "|": "$|$",
    "−": "$-$",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
    "Δ": r"$\Delta$",
    "Σ": r"$\Sigma$",
    "–": "--",
    "⏎": " ",
    **{character: f"\\{character}" for character in "&%$#_{}"},
}


def to_latex(report: Mapping[str, Any]) -> str:
    """One table environment for each table of numbers; needs the package ``booktabs``."""
    head = "% Written by heedful compare. Needs \\usepackage{booktabs}.\n"
    tables = [_table(section) for section in sections_of(report) if not section.is_text]
    return head + "\n".join(tables)


def _table(section: Section) -> str:
    columns = "l" + "r" * (len(section.header) - 1)
    lines = [" & ".join(map(escape, row)) + r" \\" for row in section.rows]
    label = section.title.lower().replace(" ", "-")
    return "\n".join(
        [
            r"\begin{table}",
            r"\centering",
            f"\\caption{{{escape(section.title)}. {escape(section.note)}}}",
            f"\\label{{tab:{label}}}",
            f"\\begin{{tabular}}{{{columns}}}",
            r"\toprule",
            " & ".join(map(escape, section.header)) + r" \\",
            r"\midrule",
            *lines,
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
            "",
        ]
    )


def escape(text: str) -> str:
    r"""Text that LaTeX prints as it is.

    Example:
        >>> print(escape("a_b & 50 % ≤ {c}"))
        a\_b \& 50 \% $\leq$ \{c\}
    """
    return "".join(_SPECIAL.get(character, character) for character in " ".join(text.split()))
