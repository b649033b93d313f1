"""The options of ``heedful evaluate`` for pairs of texts."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from heedful.tasks.options import Beam, Engine, Quantization, Sentences


@dataclass(frozen=True)
class PairEvaluation:
    """What is measured of translations, and with what they are compared."""

    against: Annotated[
        Path | None, typer.Option("--against", help="Another run, compared on the same sentences.")
    ] = None
    source: Annotated[str | None, typer.Option("--from", help="Source language of --data.")] = None
    target: Annotated[str | None, typer.Option("--to", help="Target language of --data.")] = None
    hypotheses: Annotated[
        str | None, typer.Option(help="Score this file of outputs instead of a run's.")
    ] = None
    references: Annotated[str | None, typer.Option(help="Their references, line by line.")] = None
    sources: Annotated[
        str | None, typer.Option(help="Their sources: adds faults and, asked for, lengths.")
    ] = None
    against_hypotheses: Annotated[
        str | None, typer.Option(help="Another system's outputs, compared.")
    ] = None
    gold: Annotated[
        str | None,
        typer.Option(help="Gold word links (i-j sure, ipj possible) of the test set, for the AER."),
    ] = None
    links: Annotated[
        str | None, typer.Option(help="With --gold and no run: score these links (i-j, from 0).")
    ] = None
    indexing: Annotated[
        str, typer.Option(help="Whether the gold's first word is 0 or 1; auto looks.")
    ] = "auto"
    beam: Beam = None
    by_length: Annotated[bool, typer.Option("--by-length", help="Scores by source length.")] = False
    attention: Annotated[
        bool,
        typer.Option(
            "--attention", help="Entropy, sharpness and coverage of every attention head."
        ),
    ] = False
    metrics: Annotated[str, typer.Option(help="Of bleu, chrf, ter.")] = "bleu,chrf,ter"
    tokenise: Annotated[
        str | None, typer.Option(help="sacreBLEU's tokeniser; default: the recipe's, or 13a.")
    ] = None
    lowercase: Annotated[bool, typer.Option("--lowercase", help="Compare in lower case.")] = False
    bootstrap: Annotated[int, typer.Option(help="Resamples for intervals; 0 for none.")] = 1000
    seed: Annotated[int, typer.Option(help="Of the resampling.")] = 12345
    sentences: Sentences = 3
    engine: Engine = "torch"
    quantization: Quantization = None

    @property
    def files(self) -> dict[str, str | None]:
        """The files of outputs, by their option's name."""
        return {
            "--hypotheses": self.hypotheses,
            "--references": self.references,
            "--sources": self.sources,
            "--against-hypotheses": self.against_hypotheses,
            "--links": self.links,
        }
