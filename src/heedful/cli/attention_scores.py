"""What ``heedful evaluate`` measures of attention: links against gold, and every head's weights."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from heedful.evaluation.alignment_error import AlignmentScore, GoldLinks
    from heedful.evaluation.attention_statistics import HeadStatistics


def read_gold_of(
    gold: str, indexing: str, sources: list[str], references: list[str]
) -> "list[GoldLinks]":
    """Gold links of a test set, checked against its words."""
    from heedful.data.readers import read_lines
    from heedful.evaluation.alignment_error import read_gold

    lengths = [
        (len(source.split()), len(reference.split()))
        for source, reference in zip(sources, references, strict=True)
    ]
    return read_gold(list(read_lines(gold)), where=gold, indexing=indexing, lengths=lengths)


def score_references(
    translator: Any, sources: list[str], references: list[str], gold: "list[GoldLinks]"
) -> "AlignmentScore":
    """A run's links of the references against gold ones."""
    from heedful.basics.progress import progress
    from heedful.evaluation.alignment_error import alignment_error_rate
    from heedful.evaluation.forced_alignment import align_translations

    with progress("aligning references", len(sources), "sentences") as advance:
        alignments = align_translations(translator, sources, references, advance=advance)
    return alignment_error_rate(gold, [alignment.links for alignment in alignments])


def say_rule(run: Path, translator: Any) -> dict[str, Any]:
    """Say where the alignments are read; as a part of the JSON object too."""
    from heedful.tasks.pairs.aligners import say_rule as say
    from heedful.tasks.pairs.rules import describe_rule
    from heedful.tasks.pairs.run import open_pair_run

    say(open_pair_run(run), translator)
    return describe_rule(translator.rules[0])


def measure_heads(
    translator: Any, sources: list[str], references: list[str]
) -> "list[HeadStatistics]":
    """Statistics of every head while the model is made to write the references."""
    from heedful.basics.progress import progress
    from heedful.evaluation.attention_statistics import attention_statistics

    with progress("looking at attention", len(sources), "sentences") as advance:
        return attention_statistics(translator, sources, references, advance=advance)


def score_links(gold: str, links: str, indexing: str) -> "AlignmentScore":
    """Links in a file against gold ones."""
    from heedful.data.readers import read_lines
    from heedful.evaluation.alignment_error import alignment_error_rate, read_gold, read_links

    right = read_gold(list(read_lines(gold)), where=gold, indexing=indexing)
    return alignment_error_rate(right, read_links(list(read_lines(links)), where=links))
