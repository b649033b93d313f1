"""The options of ``heedful evaluate`` for pairs of texts."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from heedful.tasks.options import Beam, Engine, Quantization, Sentences


@dataclass(frozen=True)
class PairEvaluation:
    """What to measure, and what to compare with."""

    against: Annotated[
        Path | None,
        typer.Option("--against", help="Another run to compare with on the same sentences."),
    ] = None
    source: Annotated[str | None, typer.Option("--from", help="Source language of --data.")] = None
    target: Annotated[str | None, typer.Option("--to", help="Target language of --data.")] = None
    hypotheses: Annotated[
        str | None, typer.Option(help="File of outputs to score instead of a run.")
    ] = None
    references: Annotated[str | None, typer.Option(help="File of references, one per line.")] = None
    sources: Annotated[
        str | None, typer.Option(help="File of sources, for error rates and --by-length.")
    ] = None
    against_hypotheses: Annotated[
        str | None, typer.Option(help="File of outputs of another system to compare with.")
    ] = None
    gold: Annotated[
        str | None,
        typer.Option(help="Gold word links (i-j sure, ipj possible) of the test set, for the AER."),
    ] = None
    links: Annotated[
        str | None, typer.Option(help="Without a run: file of links (i-j, from 0) to score.")
    ] = None
    indexing: Annotated[
        str, typer.Option(help="Index of the first word in the gold links: 0, 1 or auto.")
    ] = "auto"
    beam: Beam = None
    by_length: Annotated[bool, typer.Option("--by-length", help="Also score by source length.")] = (
        False
    )
    attention: Annotated[
        bool,
        typer.Option(
            "--attention", help="Measure entropy, sharpness and coverage of attention heads."
        ),
    ] = False
    metrics: Annotated[str, typer.Option(help="Metrics to compute.")] = "bleu,chrf,ter"
    tokenise: Annotated[
        str | None, typer.Option(help="sacreBLEU's tokeniser; default: the recipe's, or 13a.")
    ] = None
    lowercase: Annotated[bool, typer.Option("--lowercase", help="Compare in lower case.")] = False
    bootstrap: Annotated[int, typer.Option(help="Resamples for intervals; 0 for none.")] = 1000
    seed: Annotated[int, typer.Option(help="Seed of the resampling.")] = 12345
    sentences: Sentences = 3
    engine: Engine = "torch"
    quantization: Quantization = None

    @property
    def of_a_run(self) -> dict[str, str | int | None]:
        """Option that has an effect with a run only → its value; None for the default."""
        return {
            "--from": self.source,
            "--to": self.target,
            "--beam": self.beam,
            "--engine": None if self.engine == "torch" else self.engine,
            "--quantization": self.quantization,
        }

    @property
    def files(self) -> dict[str, str | None]:
        """Option → file."""
        return {
            "--hypotheses": self.hypotheses,
            "--references": self.references,
            "--sources": self.sources,
            "--against-hypotheses": self.against_hypotheses,
            "--links": self.links,
        }
