"""Texts whose vectors are learned: columns of similar texts, or of rated pairs, in tables."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from heedful.basics.errors import UserError
from heedful.basics.limits import LARGEST_NUMBER
from heedful.basics.notices import notice_left_out
from heedful.data.examples import Similar
from heedful.data.readers.labelled import (
    LabelledFormat,
    field,
    json_objects,
    opened_tables,
    with_choice,
)
from heedful.data.readers.opening import Input
from heedful.data.subwords import refuse_surrogates


def read_similar(
    paths: Sequence[str],
    *,
    text: Sequence[str],
    rating: str | None = None,
    encoding: str | None = None,
    format: LabelledFormat | None = None,
) -> Iterator[Similar]:
    """Stream the examples of tables (TSV, CSV, JSON lines); empty lines are counted in a notice.

    Args:
        paths: plain, gzip or xz; ``-`` is standard input.
        text: one to three columns of texts, by name or number from 1.
        rating: the column of the rating; None if there is none.
        encoding: encoding of the files; default: UTF-8.
        format: the format; default: by extension, else by the first line.

    Raises:
        UserError: a column is missing, a text is empty, or a rating is not a number.
    """
    names = [*text, *([] if rating is None else [rating])]
    for file, records, is_json in opened_tables(paths, text[:1], names, encoding, format):
        counts: Counter[str] = Counter()
        found: Iterator[tuple[str, Sequence[Any] | None]] = (
            _json_records(file, names, encoding)
            if is_json
            else with_choice(records(file, names, encoding), "--texts and --rating")
        )
        for where, values in found:
            if values is None:
                counts["empty lines"] += 1
                continue
            texts = tuple(values[: len(text)])
            for name, value in zip(text, texts, strict=True):
                if not isinstance(value, str) or not value.strip():
                    raise UserError(
                        f"{where}: '{name}' is empty or not a text; correct or remove the line"
                    )
                refuse_surrogates(value, where)
            number = None if rating is None else rating_of(values[-1], rating, where)
            yield Similar(texts, number)
        notice_left_out(file.name, counts)


def _json_records(
    file: Input, names: Sequence[str], encoding: str | None
) -> Iterator[tuple[str, list[Any] | None]]:
    for where, found in json_objects(file, encoding):
        yield where, None if found is None else [field(found, name, where) for name in names]


def rating_of(given: str | float | None, name: str, where: str) -> float:
    """The number of a rating.

    Raises:
        UserError: it is not a finite number, or is too large.
    """
    try:
        value = math.nan if given is None or isinstance(given, bool) else float(given)
    except (TypeError, ValueError):
        value = math.nan
    except OverflowError:
        value = math.inf
    if LARGEST_NUMBER < abs(value) < math.inf:
        raise UserError(
            f"{where}: '{str(given)[:40]}' is not between ±{LARGEST_NUMBER:g}; correct it, or "
            f"choose another column than '{name}'"
        )
    if not math.isfinite(value):
        raise UserError(
            f"{where}: '{str(given)[:40]}' is not a number; correct it, or choose another "
            f"column than '{name}'"
        )
    return value
