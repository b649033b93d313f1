"""What a layout says about itself, for the tables of docs/interop.md.

A module of this package describes its imports in ``IMPORTED``, a tuple of :class:`ImportRow`, and
its exports in ``EXPORTED``, a tuple of :class:`ExportRow`.
"""

from typing import NamedTuple


class ImportRow(NamedTuple):
    """A row of the table of imports."""

    model_types: tuple[str, ...]
    """Values of ``model_type`` in ``config.json``."""
    classes: tuple[str, ...]
    """Classes of transformers."""
    task: str
    """The task of the run, and what is special about it."""
    used_with: str
    """The commands that the run is for, in Markdown."""


class ExportRow(NamedTuple):
    """A row of the table of exports."""

    layout: str
    """A key of ``heedful.interop.exporting.LAYOUTS``."""
    run: str
    """The runs that can be exported, in Markdown."""
    classes: str
    """Classes of transformers, in Markdown."""
    conditions: str
    """Conditions for the recipe, in Markdown."""
