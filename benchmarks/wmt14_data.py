"""Prepares the corpora of WMT14 for heedful's recipes ``wmt14-en-de-…`` and ``wmt14-en-fr-…``.

    python benchmarks/wmt14_data.py DOWNLOADS --to de --out wmt14-en-de
    python benchmarks/wmt14_data.py DOWNLOADS --to fr --out wmt14-en-fr

DOWNLOADS has the official files of statmt.org/wmt14, as archives or unpacked, in any folders below
it. They are found by name:

- training: Europarl v7, Common Crawl, News Commentary v9; for French also the UN corpus and the
  10⁹ corpus (``training-parallel-europarl-v7.tgz``, ``training-parallel-commoncrawl.tgz``,
  ``training-parallel-nc-v9.tgz``, ``training-parallel-un.tgz``, ``training-giga-fren.tar``)
- validation: newstest2013 (``dev.tgz``), in SGM or plain text
- test: newstest2014 (``test-full.tgz``; ``test-filtered.tgz`` if that is not there), in SGM

Test sets that are not there are taken from the cache of sacreBLEU (``sacrebleu -t wmt13 -l en-de``,
``sacrebleu -t wmt14/full -l en-de``). Nothing is downloaded.

Writes ``train``, ``newstest2013`` and ``newstest2014`` in both languages, and ``counts.json``.
Training pairs with an empty side are left out; other filters are off unless you give them, and each
counts what it leaves out. Test sets are complete: white space is collapsed, as sacreBLEU does, and
the five entities of XML are replaced. A missing file is an error; ``--partial`` leaves training
corpora out that are missing, and names them.
"""

import argparse
import os
import re
import shutil
import sys
import tarfile
import tempfile
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from heedful.basics.errors import UserError
from heedful.basics.files import atomic_file, write_json, write_text
from heedful.basics.json_models import read_object
from heedful.data.examples import Pair
from heedful.data.filters import NO_FILTERS, FilterSettings, filter_pairs
from heedful.data.readers.opening import open_input
from heedful.data.readers.text import read_aligned

TRAINING = {
    "de": ("europarl-v7.de-en", "commoncrawl.de-en", "news-commentary-v9.de-en"),
    "fr": (
        "europarl-v7.fr-en",
        "commoncrawl.fr-en",
        "news-commentary-v9.fr-en",
        "undoc.2000.fr-en",
        "giga-fren.release2.fixed",
    ),
}
"""Target language → the names of its corpora, without the language that ends a file's name."""
NEWSTEST_2014 = {"de": "newstest2014-deen", "fr": "newstest2014-fren"}
SENTENCES = {"newstest2013": 3000, "newstest2014": 3003}
"""Of the complete sets; the filtered newstest2014 has 2,737 for German."""
_CHUNK = 1 << 20
_ARCHIVES = (".tgz", ".tar.gz", ".tar")
_ENTITIES = (("&lt;", "<"), ("&gt;", ">"), ("&quot;", '"'), ("&apos;", "'"), ("&amp;", "&"))
_TAG = re.compile(r"<doc\b([^>]*)>|<seg\b([^>]*)>(.*?)</seg\s*>", re.IGNORECASE | re.DOTALL)
_OPENING = re.compile(r"<seg\b", re.IGNORECASE)
_ATTRIBUTE = re.compile(r'(\w+)\s*=\s*"([^"]*)"')

Files = dict[str, list[Path]]
"""The name of a file, without ``.gz`` → where it was found."""


class Segment(NamedTuple):
    """A segment of an SGM file."""

    document: str
    number: str
    text: str


def names_of(test_set: str, to: str) -> list[tuple[str, str]]:
    """The names that a test set's two sides can have, the preferred ones first."""
    if test_set == "newstest2014":
        stem = NEWSTEST_2014[to]
        return [(f"{stem}-src.en.sgm", f"{stem}-ref.{to}.sgm")]
    return [
        (f"{test_set}-src.en.sgm", f"{test_set}-ref.{to}.sgm"),
        (f"{test_set}-src.en.sgm", f"{test_set}-src.{to}.sgm"),
        (f"{test_set}.en", f"{test_set}.{to}"),
    ]


def find_files(folder: Path, wanted: set[str], unpacked: Path, out: Path) -> Files:
    """The wanted files below a folder, those of archives unpacked.

    Args:
        folder: with files, folders and archives.
        wanted: names of files, without ``.gz``.
        unpacked: a folder for the files of archives.
        out: a folder whose files are not considered, because an earlier call wrote them.

    Raises:
        UserError: the folder is missing, or an archive is damaged.
    """
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder; give the folder with WMT14's files")
    found: Files = {}
    inside = [
        path
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.resolve().is_relative_to(out.resolve())
    ]
    for path in inside:
        if path.name.removesuffix(".gz") in wanted:
            found.setdefault(path.name.removesuffix(".gz"), []).append(path)
    # Archives may have the complete newstest2014 where the filtered one was found.
    missing = {name for name in wanted if name not in found or name.endswith(".sgm")}
    for path in inside:
        if path.name.endswith(_ARCHIVES):
            for member in _unpack(path, missing, unpacked):
                found.setdefault(member.name.removesuffix(".gz"), []).append(member)
    return found


def _unpack(archive: Path, wanted: set[str], unpacked: Path) -> Iterator[Path]:
    """Unpack the wanted files of an archive, keeping the names of their folders."""
    try:
        with tarfile.open(archive) as tar:
            for member in tar:
                inner = Path(member.name)
                file = tar.extractfile(member) if member.isfile() else None
                if file is None or inner.name.removesuffix(".gz") not in wanted:
                    continue
                target = unpacked / archive.name / inner.parent.name / inner.name
                target.parent.mkdir(parents=True, exist_ok=True)
                with file, target.open("wb") as copy:
                    shutil.copyfileobj(file, copy)
                yield target
            # Reading to the end compares the checksum of the compressed file.
            while tar.fileobj is not None and tar.fileobj.read(_CHUNK):
                pass
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise UserError(f"{archive}: the archive cannot be read ({error})") from error


def choose(paths: Sequence[Path]) -> Path:
    """One of several files of a name: of the complete test set, if there is one."""
    return min(paths, key=lambda path: ("test-full" not in path.parts, path))


def read_sgm(path: Path) -> list[Segment]:
    """The segments of an SGM file, which is not XML: texts may have a bare ``&``.

    Raises:
        UserError: the file is not UTF-8 or has no segments, or one without an end or a number.
    """
    with open_input(path) as file:
        try:
            text = b"".join(file.chunks()).decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise UserError(f"{path}: not an SGM file in UTF-8 ({error})") from error
    segments, document = [], ""
    for match in _TAG.finditer(text):
        if match[1] is not None:
            document = dict(_ATTRIBUTE.findall(match[1])).get("docid", "")
            continue
        number = dict(_ATTRIBUTE.findall(match[2])).get("id")
        if number is None:
            raise UserError(f"{path}: a segment of document '{document}' has no id")
        segments.append(Segment(document, number, clean(match[3])))
    if not segments or len(segments) != len(_OPENING.findall(text)):
        raise UserError(
            f"{path}: {len(_OPENING.findall(text)):,} segments begin and {len(segments):,} are "
            "complete; the file is damaged or not SGM"
        )
    return segments


def clean(text: str) -> str:
    """A segment's text with single spaces, and without entities.

    Example:
        >>> clean(" Q&amp;A:  x &lt; y ")
        'Q&A: x < y'
    """
    for entity, character in _ENTITIES:
        text = text.replace(entity, character)
    return " ".join(text.split())


def read_test_set(source: Path, reference: Path) -> list[Pair]:
    """The pairs of a test set.

    Raises:
        UserError: the files have different segments.
    """
    if ".sgm" not in source.suffixes:
        return [
            Pair(clean(pair.source), clean(pair.target)) for pair in read_lines(source, reference)
        ]
    sides = read_sgm(source), read_sgm(reference)
    for one, other in zip(*sides, strict=False):
        if one[:2] != other[:2]:
            raise UserError(
                f"{reference}: segment {other.number} of document '{other.document}' stands where "
                f"{source.name} has segment {one.number} of '{one.document}'"
            )
    if len(sides[0]) != len(sides[1]):
        raise UserError(
            f"{reference} has {len(sides[1]):,} segments, and {source.name} {len(sides[0]):,}"
        )
    return [Pair(one.text, other.text) for one, other in zip(*sides, strict=True)]


def read_lines(source: Path, target: Path) -> Iterator[Pair]:
    """The pairs of two files with one text per line, plain or gzip."""
    with open_input(source) as first, open_input(target) as second:
        yield from read_aligned(first, second, None)


def write_training(
    corpora: dict[str, tuple[Path, Path]], filters: FilterSettings, out: Path, to: str
) -> dict[str, dict[str, int]]:
    """Write the training pairs of all corpora; returns the counts of each.

    Duplicates are left out within a corpus.
    """
    counts: dict[str, dict[str, int]] = {}
    with ExitStack() as stack:
        files = [stack.enter_context(atomic_file(out / f"train.{side}")) for side in ("en", to)]
        for name, (source, target) in corpora.items():
            left_out: Counter[str] = Counter()
            written = 0
            for pair in filter_pairs(read_lines(source, target), filters, left_out):
                for file, text in zip(files, pair, strict=True):
                    file.write(f"{text}\n".encode())
                written += 1
            read = written + left_out.total()
            counts[name] = {"pairs": read, "written": written, **left_out}
        if not any(own["written"] for own in counts.values()):
            raise UserError("no training pair is left; the filters leave all of them out")
    return counts


def training_files(found: Files, to: str, partial: bool) -> dict[str, tuple[Path, Path]]:
    """Corpus → its English file and the other.

    Raises:
        UserError: a file is missing and ``partial`` is false, or all are missing.
    """
    chosen, missing = {}, []
    for name in TRAINING[to]:
        sides = [f"{name}.en", f"{name}.{to}"]
        absent = [side for side in sides if side not in found]
        missing += absent
        if not absent:
            chosen[name] = choose(found[sides[0]]), choose(found[sides[1]])
    if missing and (not partial or not chosen):
        raise UserError(
            f"missing: {', '.join(missing)}; download them from statmt.org/wmt14, or give "
            "--partial to train on the others"
        )
    if missing:
        print(f"wmt14_data: without {', '.join(missing)}, which are missing", file=sys.stderr)
    return chosen


def choose_test_set(test_set: str, to: str, places: Iterable[Files]) -> tuple[Path, Path]:
    """The two files of a test set, from the first place that has both.

    Raises:
        UserError: no place has them.
    """
    names = names_of(test_set, to)
    for found in places:
        for source, reference in names:
            if source in found and reference in found:
                return choose(found[source]), choose(found[reference])
    asked = "wmt14/full" if test_set == "newstest2014" else "wmt13"
    raise UserError(
        f"missing: {' and '.join(names[0])}; download them from statmt.org/wmt14, or run "
        f"'sacrebleu -t {asked} -l en-{to} --echo src'"
    )


def prepare(
    downloads: Path,
    to: str,
    out: Path,
    *,
    filters: FilterSettings,
    partial: bool = False,
    cache: Path | None = None,
) -> dict[str, Any]:
    """Write the folder that the recipes read; returns the counts.

    Args:
        downloads: the folder with the official files.
        to: ``de`` or ``fr``.
        out: the folder to write.
        filters: of the training pairs.
        partial: whether training corpora may be missing.
        cache: sacreBLEU's.

    Raises:
        UserError: files are missing or damaged.
    """
    of_tests = {name for test_set in SENTENCES for both in names_of(test_set, to) for name in both}
    of_training = {f"{name}.{side}" for name in TRAINING[to] for side in ("en", to)}
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".unpacked-", dir=out) as unpacked:
        found = find_files(downloads, of_tests | of_training, Path(unpacked), out)
        places = [found]
        if cache is not None and cache.is_dir():
            places.append(find_files(cache, of_tests, Path(unpacked), out))
        tests = {name: choose_test_set(name, to, places) for name in SENTENCES}
        corpora = training_files(found, to, partial)
        counts: dict[str, Any] = {"test": {}, "filters": filters.model_dump()}
        for name, files in tests.items():
            pairs = read_test_set(*files)
            for side, language in enumerate(("en", to)):
                text = "".join(f"{pair[side]}\n" for pair in pairs)
                write_text(out / f"{name}.{language}", text)
            counts["test"][name] = len(pairs)
        counts["training"] = write_training(corpora, filters, out, to)
    write_json(out / "counts.json", counts)
    return counts


def said(counts: dict[str, Any]) -> Iterator[str]:
    """The counts as lines of text."""
    for name, pairs in counts["test"].items():
        whole = SENTENCES[name]
        note = "" if pairs == whole else f" (the complete set has {whole:,})"
        yield f"{name}: {pairs:,} pairs{note}"
    for name, own in counts["training"].items():
        rest = {key: value for key, value in own.items() if key not in ("pairs", "written")}
        left = ", ".join(f"{value:,} {key}" for key, value in rest.items()) or "none"
        yield f"{name}: {own['pairs']:,} pairs, {own['written']:,} written; left out: {left}"
    written = sum(own["written"] for own in counts["training"].values())
    yield f"training: {written:,} pairs"


def main(arguments: Sequence[str] | None = None) -> int:
    """Prepare the corpora and print the counts."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("downloads", type=Path, help="folder with the official files")
    parser.add_argument("--to", choices=list(TRAINING), required=True, help="target language")
    parser.add_argument("--out", type=Path, required=True, help="output folder")
    parser.add_argument("--partial", action="store_true", help="training corpora may be missing")
    parser.add_argument("--max-words", type=int, help="most words of a side; no limit by default")
    parser.add_argument("--max-ratio", type=float, help="most words of a side for one of the other")
    parser.add_argument(
        "--no-duplicates", action="store_true", help="leave repeated pairs of a corpus out"
    )
    default = Path(os.environ.get("SACREBLEU", Path.home() / ".sacrebleu"))
    parser.add_argument("--cache", type=Path, default=default, help="sacreBLEU's cache")
    options = parser.parse_args(arguments)
    try:
        filters = read_object(
            FilterSettings,
            {
                **NO_FILTERS.model_dump(),
                "empty": True,
                "max_words": options.max_words,
                "max_ratio": options.max_ratio,
                "duplicates": options.no_duplicates,
            },
            "the filters",
        )
        counts = prepare(
            options.downloads,
            options.to,
            options.out,
            filters=filters,
            partial=options.partial,
            cache=options.cache,
        )
    except UserError as error:
        print(f"wmt14_data: {error}", file=sys.stderr)
        return 2
    print("\n".join(said(counts)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
