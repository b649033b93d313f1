"""``heedful data``: statistics, conversion, splitting and encoding of corpora."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heedful.basics.errors import UserError
from heedful.cli import data_encode

if TYPE_CHECKING:
    from heedful.data.examples import Pair
    from heedful.data.filters import FilterSettings
    from heedful.data.statistics import CorpusStatistics

PROGRESS_EVERY = 1000
HELP = """Inspect, convert, split and encode a corpus.

Examples:

    heedful data stats memory.tmx --from en --to de

    heedful data convert memory.tmx --from en --to de --output memory.tsv

    heedful data split memory.tmx --output-dir parts --test 500
"""

data_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


class Breaks(StrEnum):
    """What happens to a text that contains line breaks."""

    SPACE = "space"
    LEAVE_OUT = "leave-out"


class Format(StrEnum):
    """The file format of the parts of a corpus."""

    TSV = "tsv"
    TEXT = "text"


Paths = Annotated[
    list[str],
    typer.Argument(
        help="One TSV, TMX, PO or XLIFF file, a folder of such files, or two aligned text files; "
        "may be gzip-compressed; - is standard input.",
        metavar="PATH...",
    ),
]
Source = Annotated[str | None, typer.Option("--from", help="Source language; en matches en-US.")]
Target = Annotated[str | None, typer.Option("--to", help="Target language.")]
Encoding = Annotated[
    str | None,
    typer.Option("--encoding", help="Text encoding, if it is neither UTF-8 nor declared in it."),
]
NoEmpty = Annotated[bool, typer.Option("--no-empty", help="Leave out pairs with an empty side.")]
NoDuplicates = Annotated[bool, typer.Option("--no-duplicates", help="Leave out repeated pairs.")]
MaxWords = Annotated[int | None, typer.Option("--max-words", help="Maximum words on either side.")]
MaxCharacters = Annotated[
    int | None, typer.Option("--max-characters", help="Maximum characters on either side.")
]
MaxRatio = Annotated[
    float | None, typer.Option("--max-ratio", help="Maximum ratio of the numbers of words.")
]
BreaksOption = Annotated[
    Breaks,
    typer.Option("--breaks", help="What to do with line breaks in texts (in TSV also TABs)."),
]


@data_app.command(no_args_is_help=True)
def stats(
    paths: Paths,
    source: Source = None,
    target: Target = None,
    encoding: Encoding = None,
    no_empty: NoEmpty = False,
    no_duplicates: NoDuplicates = False,
    max_words: MaxWords = None,
    max_characters: MaxCharacters = None,
    max_ratio: MaxRatio = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Count pairs, words, lengths, duplicates and pairs that were left out.

    Example:

        heedful data stats memory.tmx --from en --to de
    """
    from heedful.data.statistics import corpus_statistics

    filters = _filters(no_empty, no_duplicates, max_words, max_characters, max_ratio)
    left_out: Counter[str] = Counter()
    pairs = _read(paths, source, target, encoding, filters, left_out)
    result = corpus_statistics(_with_progress(pairs, "counting"))
    if as_json:
        print(json.dumps({**result, "left_out": dict(left_out)}, ensure_ascii=False))
    else:
        _print_table(result)
        _report_left_out(left_out, paths)


@data_app.command(no_args_is_help=True)
def convert(
    paths: Paths,
    output: Annotated[
        list[Path],
        typer.Option(
            "--output",
            help="Output file: once for TSV, twice for two aligned text files; .gz compresses.",
        ),
    ],
    source: Source = None,
    target: Target = None,
    encoding: Encoding = None,
    no_empty: NoEmpty = False,
    no_duplicates: NoDuplicates = False,
    max_words: MaxWords = None,
    max_characters: MaxCharacters = None,
    max_ratio: MaxRatio = None,
    breaks: BreaksOption = Breaks.SPACE,
) -> None:
    """Write a corpus as TSV or as two aligned text files.

    A text must fit on one line: line breaks (in TSV also TABs) are replaced by spaces. With
    --breaks leave-out, such pairs are left out. A message gives their number.

    Example:

        heedful data convert memory.tmx --from en --to de --output memory.tsv.gz
    """
    from heedful.basics.notices import notice
    from heedful.data.pair_writer import write_pairs

    filters = _filters(no_empty, no_duplicates, max_words, max_characters, max_ratio)
    left_out: Counter[str] = Counter()
    pairs = _read(paths, source, target, encoding, filters, left_out)
    writer = write_pairs(_with_progress(pairs, "converting"), output, breaks.value)
    _report_left_out(left_out, paths)
    _report_changed(writer.changed)
    notice(f"{writer.written:,} pairs written to {' and '.join(map(str, output))}")


@data_app.command(no_args_is_help=True)
def split(
    paths: Paths,
    output_dir: Annotated[Path, typer.Option("--output-dir", help="New folder for the parts.")],
    validation: Annotated[
        str, typer.Option("--validation", help="Pairs for validation: a number or a share (5%).")
    ] = "0",
    test: Annotated[
        str, typer.Option("--test", help="Pairs for the test set: a number or a share (5%).")
    ] = "0",
    seed: Annotated[int, typer.Option("--seed", help="Seed of the random split.")] = 1,
    source: Source = None,
    target: Target = None,
    encoding: Encoding = None,
    no_empty: NoEmpty = False,
    no_duplicates: NoDuplicates = False,
    max_words: MaxWords = None,
    max_characters: MaxCharacters = None,
    max_ratio: MaxRatio = None,
    form: Annotated[
        Format, typer.Option("--format", help="One TSV file or two text files per part.")
    ] = Format.TSV,
    breaks: BreaksOption = Breaks.SPACE,
) -> None:
    """Split a corpus into training, validation and test parts that share no source text.

    The parts depend on the pairs and the seed, not on the order of the lines.

    Example:

        heedful data split memory.tmx --from en --to de --output-dir parts --test 500
    """
    from heedful.basics.notices import notice
    from heedful.data.splitting import split_corpus

    if "-" in paths:
        raise UserError("split reads its input twice; save standard input to a file first")
    filters = _filters(no_empty, no_duplicates, max_words, max_characters, max_ratio)
    left_out: Counter[str] = Counter()

    def read() -> "Iterator[Pair]":
        left_out.clear()
        pairs = _read(paths, source, target, encoding, filters, left_out)
        return _with_progress(pairs, "splitting")

    sides = [source or "source", target or "target"]
    names = ["tsv"] if form is Format.TSV else sides
    parts = {"validation": validation, "test": test}
    sizes, changed = split_corpus(read, output_dir, names, **parts, seed=seed, breaks=breaks.value)
    _report_left_out(left_out, paths)
    _report_changed(changed)
    counts = ", ".join(f"{part} {count:,}" for part, count in sizes.items())
    notice(f"pairs written to {output_dir}: {counts}")


data_app.command(no_args_is_help=True, help=data_encode.HELP)(data_encode.encode)


def register(app: typer.Typer) -> None:
    """Add the command group."""
    app.add_typer(data_app, name="data", help=HELP)


def _filters(
    no_empty: bool,
    no_duplicates: bool,
    max_words: int | None,
    max_characters: int | None,
    max_ratio: float | None,
) -> "FilterSettings":
    from heedful.basics.settings import check
    from heedful.data.filters import FilterSettings

    values: dict[str, Any] = {
        "empty": no_empty,
        "duplicates": no_duplicates,
        "max_words": max_words,
        "max_characters": max_characters,
        "max_ratio": max_ratio,
    }
    return check(FilterSettings, values, "filters")


def _read(
    paths: list[str],
    source: str | None,
    target: str | None,
    encoding: str | None,
    filters: "FilterSettings",
    left_out: Counter[str],
) -> "Iterator[Pair]":
    from heedful.data.filters import filter_pairs
    from heedful.data.readers import read_pairs

    pairs = read_pairs(paths, source=source, target=target, encoding=encoding, left_out=left_out)
    return filter_pairs(pairs, filters, left_out)


def _with_progress(pairs: "Iterable[Pair]", text: str) -> "Iterator[Pair]":
    from heedful.basics.progress import progress

    with progress(text, None, "pairs") as advance:
        for number, pair in enumerate(pairs, start=1):
            yield pair
            if number % PROGRESS_EVERY == 0:
                advance(PROGRESS_EVERY)


def _report_left_out(left_out: Counter[str], paths: list[str]) -> None:
    from heedful.data.readers import report_left_out

    report_left_out(left_out, " and ".join(paths))


def _report_changed(changed: Counter[str]) -> None:
    from heedful.basics.notices import notice

    for what, count in changed.items():
        end = "" if "became" in what else ", left out"
        notice(f"{count:,} pairs {what}{end}")


def _print_table(result: "CorpusStatistics") -> None:
    print(f"pairs        {result['pairs']:,}")
    print(f"duplicates   {result['duplicates']:,}")
    print(f"identical    {result['identical']:,}   (source and target are identical)")
    print(f"word ratio   {result['mean_ratio']:.3f}   (target to source)")
    print(f"\n{'':16}{'source':>14}{'target':>14}")
    source, target = result["source"], result["target"]
    rows = zip(source, source.values(), target.values(), strict=True)
    for name, left, right in rows:
        print(f"{name.replace('_', ' '):16}{left:>14,}{right:>14,}")
