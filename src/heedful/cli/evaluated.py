"""What ``heedful evaluate`` scores: a run's translations, or any system's in files."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heedful.basics.errors import UserError
from heedful.cli.attention_scores import (
    measure_heads,
    read_gold_of,
    say_rule,
    score_links,
    score_references,
)
from heedful.cli.options import search_of

if TYPE_CHECKING:
    from heedful.evaluation.alignment_error import AlignmentScore
    from heedful.evaluation.attention_statistics import HeadStatistics
    from heedful.tasks.pairs.run import PairRun


@dataclass(frozen=True)
class ScoredTexts:
    """What is scored, wherever it comes from."""

    system: str
    outputs: list[str]
    references: list[str]
    sources: list[str] | None
    against: str | None = None
    against_outputs: list[str] | None = None
    alignment: "AlignmentScore | None" = None
    attention: "list[HeadStatistics]" = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)


def texts_of_files(files: dict[str, str | None], gold: str | None, indexing: str) -> ScoredTexts:
    """What stands in files; ``files`` are by their option's name."""
    from heedful.data.readers import read_lines

    def lines(name: str) -> list[str] | None:
        file = files[name]
        return None if file is None else list(read_lines(file))

    alignment = None
    if gold is not None and files["--links"] is not None:
        alignment = score_links(gold, files["--links"], indexing)
    return ScoredTexts(
        system=str(files["--hypotheses"]),
        outputs=lines("--hypotheses") or [],
        references=lines("--references") or [],
        sources=lines("--sources"),
        against=files["--against-hypotheses"],
        against_outputs=lines("--against-hypotheses"),
        alignment=alignment,
    )


def texts_of_runs(
    run: Path,
    against: Path | None,
    corpus: tuple[list[str] | None, str | None, str | None],
    beam: int | None,
    gold: str | None,
    indexing: str,
    attention: bool,
    chosen: dict[str, Any],
) -> ScoredTexts:
    """The translations of a run, and of the one it is compared with.

    Args:
        run: the run that is scored.
        against: the one it is compared with.
        corpus: ``--data``, ``--from`` and ``--to``; without data, the run's own test set.
        beam: None for the run's own.
        gold: file of gold word links.
        indexing: of the gold's words.
        attention: whether the heads are measured.
        chosen: checkpoint, device and precision, engine and quantization.

    Raises:
        UserError: there is nothing to translate, or a file or run is not as it should be.
    """
    from heedful.basics.progress import progress
    from heedful.interop.engines import load_with_engine

    pairs = _test_pairs(open_pairs(run), *corpus)
    sources = [pair.source for pair in pairs]
    references = [pair.target for pair in pairs]
    # The gold is read first: a mistake in it should not cost the time of translating.
    right = None if gold is None else read_gold_of(gold, indexing, sources, references)
    found: list[list[str]] = []
    used: list[dict[str, Any]] = []
    alignment, heads = None, []
    for path in [run] if against is None else [run, against]:
        options = search_of(path, beam, "heedful evaluate")
        point = open_pairs(path).chosen(chosen["checkpoint"]).path.name
        inside = path == run and (attention or right is not None)
        translator = load_with_engine([path], model=inside, **chosen)
        with progress(f"translating with {path}", len(sources), "sentences") as advance:
            translations = translator.translate(sources, options=options, advance=advance)
        found.append([translation.text for translation in translations])
        used.append(
            {
                "checkpoint": point,
                "beam": options.beam,
                "length_penalty": options.length_penalty,
                "engine": chosen["engine"],
                **translator.computing,
            }
        )
        if len(found) == 1 and right is not None:
            used[0]["alignment_rule"] = say_rule(path, translator)
            alignment = score_references(translator, sources, references, right)
        if len(found) == 1 and attention:
            heads = measure_heads(translator, sources, references)
    return ScoredTexts(
        system=str(run),
        outputs=found[0],
        references=references,
        sources=sources,
        against=None if against is None else str(against),
        against_outputs=found[1] if against is not None else None,
        alignment=alignment,
        attention=heads,
        facts={
            "data": corpus[0] or "test set of the run",
            **used[0],
            **({} if against is None else {"against_used": used[1]}),
        },
    )


def _test_pairs(
    run: "PairRun", data: list[str] | None, source: str | None, target: str | None
) -> list[Any]:
    from heedful.data.readers import read_pairs

    if data:
        known = run.recipe.data
        pairs = list(read_pairs(data, source=source or known.source, target=target or known.target))
        if not pairs:
            raise UserError(f"{' and '.join(data)} has no pairs to evaluate on")
        return pairs
    pairs = run.pairs("test")
    if not pairs:
        raise UserError(f"{run.path} keeps no test set; name one: --data FILE --from … --to …")
    return pairs


def open_pairs(run: Path) -> "PairRun":
    """The run; a UserError where it is none for pairs of texts."""
    from heedful.tasks.pairs.run import open_pair_run

    return open_pair_run(run)
