"""Draws how several systems align the same three sentences, for docs/results.md.

python docs/scripts/alignment_pictures.py "Bahdanau=runs/bahdanau" "Transformer=runs/transformer" …

Each system reads the reference by teacher forcing, so that all have the same axes; a cell is the
weight of a source word (column) for a target word (row), summed and averaged over their subwords.
The sentences are those of Multi30k's test_2016_flickr in which the order of words changes most to
the eye, chosen before any system had been drawn.
"""

import sys
from pathlib import Path

import torch

from heedful.basics.errors import UserError
from heedful.evaluation.forced_alignment import align_translations
from heedful.runs.opening import open_run
from heedful.tasks.pairs.building import load_translator
from heedful.viewing.figures import save_figure
from heedful.viewing.heatmap import head_figure

IMAGES = Path(__file__).parents[1] / "images"
LINES = (13, 91, 95)
"""Lines of the test set, counted from 1."""


def main(systems: list[str]) -> None:
    names, soft = [], []
    for system in systems:
        name, equals, folder = system.partition("=")
        if not equals:
            raise UserError(f"{system}: expected NAME=RUN")
        pairs = [open_run(folder).pairs("test")[line - 1] for line in LINES]
        sources, references = [p.source for p in pairs], [p.target for p in pairs]
        translator = load_translator([folder])
        names.append(name)
        soft.append([one.soft for one in align_translations(translator, sources, references)])
    for number, (source, reference) in enumerate(zip(sources, references, strict=True)):
        weights = torch.stack([found[number] for found in soft])
        figure = head_figure(weights, reference.split(), source.split(), names=names)
        save_figure(figure, IMAGES / f"systems-{number + 1}.png", resolution=110)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except UserError as error:
        sys.exit(str(error))
