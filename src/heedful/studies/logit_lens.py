"""At which layer is a language model's prediction made?"""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from matplotlib.figure import Figure

from heedful.basics.errors import UserError
from heedful.basics.symbols import END
from heedful.evaluation.layer_predictions import LayerPredictions, layer_predictions
from heedful.inference.generator import Generator
from heedful.studies.drawing import draw_lines, panels
from heedful.studies.study import Picture, Study, StudyOptions, StudyResult, Table
from heedful.studies.trained_runs import WIKITEXT, Recipe, Trained, texts_of, trained_runs
from heedful.viewing.figures import new_figure, set_missing_characters
from heedful.viewing.fonts import font_families
from heedful.viewing.heatmap import COLOURS
from heedful.viewing.labels import shorten, token_labels

RECIPES = (Recipe("wikitext2-gpt-tiny", WIKITEXT),)
_TOKENS = 20_000
_SHOWN = 14
"""Tokens of the picture of a line."""

METHOD = """The states before the first layer (the embeddings) and after each layer are read by the
model's own last norm and output layer, for 20,000 tokens of the run's validation texts (the first
lines of its documents; a line longer than the model's maximum is read in parts). The final
prediction is the last layer's most probable token. For each layer: how often its own most probable
token is the final prediction, the median rank and the mean probability of the final prediction, the
divergence KL(final ‖ layer) in nats, and the loss of the token that follows in the text.
nostalgebraist 2020, "interpreting GPT: the logit lens"."""


def run(options: StudyOptions) -> StudyResult:
    """Read all layers of each run."""
    found: list[str] = []
    tables: list[Table] = []
    pictures: list[Picture] = []
    for number, trained in enumerate(trained_runs(options, RECIPES, _check), start=1):
        options.echo(f"{trained.label}: reads its validation texts")
        predictor: Generator = trained.predictor
        lines = predictor.vocabulary.encode_batch(texts_of(trained))
        texts = list(_first(lines, predictor.max_length, 200 if options.quick else _TOKENS))
        seen = layer_predictions(predictor.model, texts, predictor.device)
        rows = layer_rows(seen)
        found.append(_summary(trained.label, rows))
        title = f"{trained.label}: layers, {seen.rank.shape[1]:,} predictions"
        tables.append(Table(f"run-{number}", title, COLUMNS, rows))
        pictures.append(_curves(trained.label, number, rows))
        longest = min(_SHOWN, predictor.max_length)
        shown = next((line for line in lines if len(line) >= longest), max(lines, key=len))
        pictures.append(_sentence(trained.label, number, predictor, shown[:longest]))
    return StudyResult(tuple(found), tuple(tables), tuple(pictures))


def _check(trained: Trained) -> None:
    if not isinstance(trained.predictor, Generator):
        raise UserError(
            f"{trained.run.path} is a run for {trained.run.recipe.task}; the logit lens needs "
            "the run of a language model"
        )


COLUMNS = (
    "layer",
    "same prediction",
    "median rank",
    "probability",
    "KL to the final output",
    "loss",
)


def layer_rows(seen: LayerPredictions) -> tuple[tuple[int, float, int, float, float, float], ...]:
    """The rows of the table: a layer, and means over predictions (of ranks, the lower median)."""
    return tuple(
        (
            layer,
            float((seen.rank[layer] == 1).double().mean()),
            int(seen.rank[layer].median()),
            float(seen.probability[layer].double().mean()),
            float(seen.divergence[layer].double().mean()),
            float(seen.loss[layer].double().mean()),
        )
        for layer in range(len(seen.rank))
    )


def _first(lines: Sequence[list[int]], longest: int, most: int) -> Iterator[list[int]]:
    """Texts of at most ``longest`` + 1 tokens, END before each line; ``most`` tokens in all."""
    left = most
    for line in lines:
        whole = [END, *line[:left]]
        left -= len(whole) - 1
        for first in range(0, len(whole) - 1, longest):
            yield whole[first : first + longest + 1]
        if not left:
            return


def _summary(label: str, rows: Sequence[tuple[Any, ...]]) -> str:
    shares = ", ".join(f"{row[1]:.2f}" for row in rows)
    losses = ", ".join(f"{row[5]:.2f}" for row in rows)
    return (
        f"{label}: from the embeddings to the last layer, the most probable token is the final "
        f"prediction in a share of {shares} of the cases; the loss is {losses}."
    )


def _curves(label: str, number: int, rows: Sequence[tuple[Any, ...]]) -> Picture:
    figure, axes = panels(3, width=3.0)
    layers = [row[0] for row in rows]
    shown = (("same prediction", 1), ("KL to the final output (nats)", 4), ("loss (nats)", 5))
    for own, (title, column) in zip(axes, shown, strict=True):
        draw_lines(own, {label: (layers, [row[column] for row in rows])})
        own.set_title(title, fontsize=10)
        own.set_xlabel("layer (0: embeddings)")
        own.set_xticks(layers)
        own.set_ylim(0, 1.08 * max(row[column] for row in rows))
    caption = (
        f"{label}: how often a layer's most probable token is the final prediction, its divergence "
        "from the final output, and its loss."
    )
    return Picture(f"run-{number}", caption, figure)


def _sentence(label: str, number: int, predictor: Generator, tokens: list[int]) -> Picture:
    """The beginning of a line: the most probable token of each layer after each token."""
    text = [END, *tokens]
    seen = layer_predictions(predictor.model, [text], predictor.device)
    best = [predictor.vocabulary.pieces(row) for row in seen.best.tolist()]
    read = predictor.vocabulary.pieces(text)
    figure = lens_figure(read, best, seen.best_probability.tolist())
    caption = (
        f"{label}: the most probable next token of each layer (rows, the last layer on top) after "
        "each token (columns); darker is more probable. Below, the tokens that are read; above, "
        "those that follow in the text."
    )
    return Picture(f"run-{number}-sentence", caption, figure)


def lens_figure(
    read: Sequence[str], best: Sequence[Sequence[str]], probabilities: Sequence[Sequence[float]]
) -> Figure:
    """A grid of layers and tokens, with the most probable token in each cell.

    Args:
        read: the tokens of the text ``[P + 1]``; the last one is not read.
        best: each layer's most probable next token ``[S][P]``, the embeddings first.
        probabilities: their probabilities ``[S][P]``.
    """
    layers, columns = len(best), len(read) - 1
    labels, following = token_labels(read[:-1]), token_labels(read[1:])
    cells = [[shorten(one, 9) for one in token_labels(row)] for row in best]
    families, missing = font_families([*labels, *following, *(one for row in cells for one in row)])
    style: dict[str, Any] = {
        "fontfamily": [*families, "sans-serif"],
        "fontsize": 8,
        "parse_math": False,
    }
    figure = new_figure(1.2 + 0.78 * columns, 1.4 + 0.36 * layers)
    axes: Any = figure.subplots()
    drawn = axes.pcolormesh(
        torch.tensor(probabilities).numpy(), cmap=COLOURS, vmin=0, vmax=1, edgecolor="#e4e4e4"
    )
    for layer, row in enumerate(cells):
        for place, one in enumerate(row):
            dark = probabilities[layer][place] > 0.5
            axes.text(
                place + 0.5,
                layer + 0.5,
                one,
                ha="center",
                va="center",
                color="white" if dark else "black",
                **style,
            )
    middles = [place + 0.5 for place in range(columns)]
    axes.set_xticks(middles, [shorten(one, 9) for one in labels], **style)
    axes.set_yticks(
        [layer + 0.5 for layer in range(layers)],
        ["embeddings", *(f"layer {layer}" for layer in range(1, layers))],
        fontsize=8,
    )
    above = axes.secondary_xaxis("top")
    above.set_xticks(middles, [shorten(one, 9) for one in following], **style)
    for own in (axes, above):
        own.tick_params(length=0)
    figure.colorbar(drawn, ax=axes, pad=0.02, label="probability").ax.tick_params(labelsize=8)
    figure.tight_layout()
    set_missing_characters(figure, missing)
    return figure


STUDY = Study(
    "logit-lens",
    "The logit lens",
    "At which layer does a language model know what it will predict?",
    METHOD,
    run,
    {"data or run": "a folder with wikitext-2, or a trained run"},
)
