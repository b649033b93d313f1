"""``heedful align``: align the words of a parallel corpus with one run, or with two."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heedful.basics.errors import UserError
from heedful.tasks.options import (
    Checkpoint,
    Device,
    Precision,
    Threads,
    opening_of,
    use_threads,
)

if TYPE_CHECKING:
    from heedful.data.examples import Pair
    from heedful.tasks.pairs.aligners import RunDirection


@dataclass(frozen=True)
class Align:
    """Align the words of pairs: one line of Pharaoh links (0-0 2-1) for each pair, in order.

    Words are separated by white space and counted from 0. The line of a pair with an empty side is
    empty.

    Examples:

        heedful align runs/en-es runs/es-en corpus.tsv --output links.txt

        heedful align runs/aligner corpus.tsv --output links.txt

        heedful align runs/en-es corpus.en corpus.es --json

        heedful align runs/en-es runs/es-en dev.en dev.es --choose-rule dev.gold
    """

    places: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN [RUN_REVERSE] FILE...",
            help="A run, or two runs of opposite directions whose links are joined (or the folder "
            "of both from heedful train --task align); then the corpus: TSV, TMX, PO or XLIFF, or "
            "two aligned text files; - is standard input.",
        ),
    ]
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Output file; default: standard output.")
    ] = None
    join: Annotated[
        str | None,
        typer.Option(
            "--join",
            help="intersection, union, grow-diag, grow-diag-final or grow-diag-final-and. "
            "Default: the rule from --choose-rule, or grow-diag-final-and.",
        ),
    ] = None
    as_json: Annotated[
        bool, typer.Option("--json", help="Write one JSON object per pair: texts, links, weights.")
    ] = False
    source: Annotated[
        str | None, typer.Option("--from", help="Language of the first side of the corpus.")
    ] = None
    target: Annotated[
        str | None,
        typer.Option(
            "--to",
            help="Language of the second side. Links of a run in the other direction are reversed.",
        ),
    ] = None
    encoding: Annotated[str | None, typer.Option(help="Encoding of text files, if not UTF-8.")] = (
        None
    )
    choose_rule: Annotated[
        str | None,
        typer.Option(
            "--choose-rule",
            metavar="GOLD",
            help="Instead of aligning, choose the best alignment rule of the runs by gold links "
            "(i-j sure, ipj possible) of the corpus, and store it in the runs.",
        ),
    ] = None
    pairs: Annotated[
        int | None, typer.Option("--pairs", help="Choose on this many pairs only.")
    ] = None
    indexing: Annotated[
        str, typer.Option(help="Index of the first word in the gold links: 0, 1 or auto.")
    ] = "auto"
    checkpoint: Checkpoint = None
    device: Device = "auto"
    threads: Threads = None
    precision: Precision = "float32"


def run(options: Align) -> None:
    """Run the command."""
    from heedful.evaluation.symmetrisation import check_join
    from heedful.inference.files import check_output
    from heedful.tasks.pairs.aligners import build_aligner, load_directions, runs_of

    runs, files = _split_places(options.places)
    if len(runs) == 1:
        runs = runs_of(runs[0])
    how = None if options.join is None else check_join(options.join)
    if options.join is not None and len(runs) == 1:
        raise UserError("--join needs two runs; also give the run of the other direction")
    _check_choice(options)
    check_output(options.output)
    use_threads(options.threads)
    directions = load_directions(
        runs, languages=(options.source, options.target), **opening_of(options)
    )
    corpus = _Corpus(files, directions, (options.source, options.target), options.encoding)
    if options.choose_rule is not None:
        _choose(
            directions,
            corpus,
            (options.choose_rule, options.indexing, options.pairs),
            options.checkpoint,
        )
        return
    aligner = build_aligner(directions, how)
    _write(aligner, corpus, options.output, options.as_json)


def _split_places(places: list[Path]) -> tuple[list[Path], list[str]]:
    """The runs (folders) and the files of the corpus."""
    runs = [place for place in places[:2] if place.is_dir()] if places[0].is_dir() else places[:1]
    files = [str(place) for place in places[len(runs) :]]
    folders = [file for file in files if Path(file).is_dir()]
    if folders:
        raise UserError(f"{folders[0]} is a folder; give one or two runs, then files")
    if not files:
        raise UserError("no corpus: give a TSV, TMX, PO or XLIFF file, two text files, or -")
    if len(files) > 2:
        raise UserError(f"{len(files)} files; give one file of pairs, or two aligned text files")
    return runs, files


def _check_choice(options: Align) -> None:
    if options.indexing not in ("auto", "0", "1"):
        raise UserError(f"--indexing {options.indexing}: use auto, 0 or 1")
    if options.choose_rule is None:
        if options.pairs is not None or options.indexing != "auto":
            raise UserError("--pairs and --indexing need --choose-rule GOLD")
        return
    if options.pairs is not None and options.pairs < 1:
        raise UserError(f"--pairs {options.pairs}: the minimum is 1")
    if options.output is not None or options.as_json or options.join is not None:
        raise UserError(
            "--choose-rule writes no alignments and chooses the join: leave out --output, --json "
            "and --join"
        )


class _Corpus:
    """The pairs to align."""

    def __init__(
        self,
        files: list[str],
        directions: "list[RunDirection]",
        languages: tuple[str | None, str | None],
        encoding: str | None,
    ) -> None:
        known = directions[0].run.recipe.data
        own = (known.target, known.source) if directions[0].turned else (known.source, known.target)
        self.files, self.encoding = files, encoding
        self.languages = (languages[0] or own[0], languages[1] or own[1])

    def read(self) -> "Iterator[Pair]":
        from heedful.data.readers import read_pairs

        source, target = self.languages
        return read_pairs(self.files, source=source, target=target, encoding=self.encoding)

    def count(self) -> int | None:
        """The number of pairs, for the progress bar; None if they can be read only once."""
        import sys

        from heedful.data.readers import read_pairs

        if not sys.stderr.isatty() or any(not Path(file).is_file() for file in self.files):
            return None
        source, target = self.languages
        silent: Counter[str] = Counter()
        read = read_pairs(
            self.files, source=source, target=target, encoding=self.encoding, left_out=silent
        )
        return sum(1 for _ in read)


def _write(aligner: Any, corpus: _Corpus, output: Path | None, as_json: bool) -> None:
    from heedful.basics.notices import notice
    from heedful.basics.progress import progress
    from heedful.evaluation.aligner import align_corpus

    left_out: Counter[str] = Counter()
    with progress("aligning", corpus.count(), "pairs") as advance:
        total = align_corpus(
            aligner,
            corpus.read(),
            output,
            as_json=as_json,
            advance=advance,
            left_out=left_out,
        )
    for reason, count in left_out.items():
        if count:
            notice(f"{count:,} of {total:,} pairs are {reason}: they get no links")


def _choose(
    directions: "list[RunDirection]",
    corpus: _Corpus,
    how: tuple[str, str, int | None],
    checkpoint: str | None,
) -> None:
    from itertools import islice

    from heedful.data.readers import read_lines
    from heedful.evaluation.aligner import require_two_sides
    from heedful.evaluation.alignment_error import read_gold
    from heedful.evaluation.tables import draw
    from heedful.tasks.pairs.rule_selection import choose_rules

    gold, indexing, first = how
    pairs = list(corpus.read())
    require_two_sides(pairs)
    lengths = [(len(pair.source.split()), len(pair.target.split())) for pair in pairs]
    right = read_gold(list(read_lines(gold)), where=gold, indexing=indexing, lengths=lengths)
    if first is not None:
        pairs, right = list(islice(pairs, first)), right[:first]
    draw(choose_rules(directions, pairs, right, gold, checkpoint))
