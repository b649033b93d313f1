"""``heedful data``: what a corpus is like, the same corpus in another form, and its parts."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heedful.basics.errors import UserError

if TYPE_CHECKING:
    from heedful.data.examples import Pair
    from heedful.data.filters import FilterSettings
    from heedful.data.statistics import CorpusStatistics

PROGRESS_EVERY = 1000
HELP = """Look at a corpus, convert it, split it.

Examples:

    heedful data stats memory.tmx --from en --to de

    heedful data convert memory.tmx --from en --to de --output memory.tsv

    heedful data split memory.tmx --output-dir parts --test 500
"""

data_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


class Breaks(StrEnum):
    """What becomes of a text that does not fit on a line."""

    SPACE = "space"
    LEAVE_OUT = "leave-out"


class Format(StrEnum):
    """How the parts of a corpus are written."""

    TSV = "tsv"
    TEXT = "text"


Paths = Annotated[
    list[str],
    typer.Argument(
        help="One TSV, TMX, PO or XLIFF file, or two aligned text files; plain or gzip; - is "
        "standard input.",
        metavar="PATH...",
    ),
]
Source = Annotated[str | None, typer.Option("--from", help="Source language; en takes en-US.")]
Target = Annotated[str | None, typer.Option("--to", help="Target language.")]
Encoding = Annotated[
    str | None,
    typer.Option("--encoding", help="The text's encoding, if not UTF-8 or what the file declares."),
]
NoEmpty = Annotated[bool, typer.Option("--no-empty", help="Leave out pairs with an empty side.")]
NoDuplicates = Annotated[
    bool, typer.Option("--no-duplicates", help="Leave out all but the first of equal pairs.")
]
MaxWords = Annotated[int | None, typer.Option("--max-words", help="Most words on either side.")]
MaxCharacters = Annotated[
    int | None, typer.Option("--max-characters", help="Most characters on either side.")
]
MaxRatio = Annotated[
    float | None, typer.Option("--max-ratio", help="Most words for one of the other side.")
]
BreaksOption = Annotated[
    Breaks,
    typer.Option("--breaks", help="What becomes of texts with line breaks (in TSV also TABs)."),
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
    """Count pairs, words, lengths, duplicates, and what was left out.

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
        _say(left_out, paths)


@data_app.command(no_args_is_help=True)
def convert(
    paths: Paths,
    output: Annotated[
        list[Path],
        typer.Option(
            "--output",
            help="Where to: once for TSV, twice for two aligned text files; .gz compresses.",
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

    Texts with line breaks (in TSV also TABs) do not fit on a line: they become spaces, or with
    --breaks leave-out the pair is left out. Either way their number is said.

    Example:

        heedful data convert memory.tmx --from en --to de --output memory.tsv.gz
    """
    from heedful.basics.notices import notice
    from heedful.data.pair_writer import write_pairs

    filters = _filters(no_empty, no_duplicates, max_words, max_characters, max_ratio)
    left_out: Counter[str] = Counter()
    pairs = _read(paths, source, target, encoding, filters, left_out)
    writer = write_pairs(_with_progress(pairs, "converting"), output, breaks.value)
    _say(left_out, paths)
    _say_changed(writer.changed)
    notice(f"{writer.written:,} pairs written to {' and '.join(map(str, output))}")


@data_app.command(no_args_is_help=True)
def split(
    paths: Paths,
    output_dir: Annotated[Path, typer.Option("--output-dir", help="A new folder for the parts.")],
    validation: Annotated[
        str, typer.Option("--validation", help="Pairs for validation: a number, or a share as 5%.")
    ] = "0",
    test: Annotated[
        str, typer.Option("--test", help="Pairs for the test: a number, or a share as 5%.")
    ] = "0",
    seed: Annotated[int, typer.Option("--seed", help="Another seed gives other parts.")] = 1,
    source: Source = None,
    target: Target = None,
    encoding: Encoding = None,
    no_empty: NoEmpty = False,
    no_duplicates: NoDuplicates = False,
    max_words: MaxWords = None,
    max_characters: MaxCharacters = None,
    max_ratio: MaxRatio = None,
    form: Annotated[
        Format, typer.Option("--format", help="One TSV file a part, or two text files.")
    ] = Format.TSV,
    breaks: BreaksOption = Breaks.SPACE,
) -> None:
    """Split a corpus into training, validation and test parts, no source in two of them.

    The same pairs and seed always give the same parts, whatever the order of the lines.

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
    _say(left_out, paths)
    _say_changed(changed)
    counts = ", ".join(f"{part} {count:,}" for part, count in sizes.items())
    notice(f"pairs written to {output_dir}: {counts}")


def register(app: typer.Typer) -> None:
    """Add the group of commands."""
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


def _say(left_out: Counter[str], paths: list[str]) -> None:
    from heedful.data.readers import say_left_out

    say_left_out(left_out, " and ".join(paths))


def _say_changed(changed: Counter[str]) -> None:
    from heedful.basics.notices import notice

    for what, count in changed.items():
        end = "" if "became" in what else ", left out"
        notice(f"{count:,} pairs {what}{end}")


def _print_table(result: "CorpusStatistics") -> None:
    print(f"pairs        {result['pairs']:,}")
    print(f"duplicates   {result['duplicates']:,}")
    print(f"identical    {result['identical']:,}   (source and target are the same)")
    print(f"word ratio   {result['mean_ratio']:.3f}   (target to source)")
    print(f"\n{'':16}{'source':>14}{'target':>14}")
    source, target = result["source"], result["target"]
    rows = zip(source, source.values(), target.values(), strict=True)
    for name, left, right in rows:
        print(f"{name.replace('_', ' '):16}{left:>14,}{right:>14,}")
