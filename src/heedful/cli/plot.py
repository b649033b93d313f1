"""``heedful plot``: figures of attention weights and training curves."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heedful.basics.errors import UserError
from heedful.cli.commands import add_command, refuse_unused
from heedful.tasks.options import (
    Beam,
    Checkpoint,
    Device,
    Precision,
    Threads,
    opening_of,
    use_threads,
)

if TYPE_CHECKING:
    from heedful.decoding import SearchOptions
    from heedful.inference import Axis, Trace, Translator

_HEADS = "--heads needs --output FILE that ends in .png, .svg or .pdf"
_DISTANCES = "--distances compares all heads; leave out --heads, --links, --layer and --tokens"
_LINKS = "--links needs --output FILE that ends in .png, .svg or .pdf, and excludes --heads"
Which = tuple[bool, int | None, str | None]
"""Whether heads are apart, the layer, and the name of the map."""


@dataclass(frozen=True)
class Plot:
    """Plot the attention weights of a run, its training curves, or its calibration.

    For a translator: the alignment of a sentence with its translation, or the heads of a layer. For
    other runs: an attention map over the tokens of a text.

    Examples:

        heedful plot runs/en-de "The small dog sees the red house." --output dog.svg

        heedful plot runs/en-de "Good morning" --target "Guten Morgen" --heads --output heads.pdf

        heedful plot runs/en-de "The small dog sees the red house." --links --output links.svg

        heedful plot runs/mood "a film that one remembers" --output mood.png

        heedful plot runs/mood "a film that one remembers" --distances --output distances.png

        heedful plot runs/en-de --curves --output curves.png

        heedful plot runs/mood --calibration --output reliability.png
    """

    run: Annotated[Path, typer.Argument(help="The run.")]
    sentence: Annotated[str | None, typer.Argument(help="The input text.")] = None
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", help="A .png, .svg or .pdf file; default: print the plot as text."
        ),
    ] = None
    target: Annotated[
        str | None, typer.Option("--target", help="Use this translation instead of the run's own.")
    ] = None
    tokens: Annotated[
        bool, typer.Option("--tokens", help="Plot over the model's tokens instead of words.")
    ] = False
    heads: Annotated[bool, typer.Option("--heads", help="One panel per head, over tokens.")] = False
    links: Annotated[
        bool, typer.Option("--links", help="Draw links between tokens instead of a matrix.")
    ] = False
    layer: Annotated[
        int | None, typer.Option("--layer", help="Cross-attention of this layer, counted from 1.")
    ] = None
    name: Annotated[
        str | None,
        typer.Option("--map", help="Any attention module, by name; '?' lists all names."),
    ] = None
    distances: Annotated[
        bool,
        typer.Option(
            "--distances", help="Plot how far apart the heads of all layers are (Jensen–Shannon)."
        ),
    ] = False
    head: Annotated[str | None, typer.Option("--head", help="Which head of a multi-task run.")] = (
        None
    )
    curves: Annotated[bool, typer.Option("--curves", help="Plot the training curves.")] = False
    calibration: Annotated[
        bool,
        typer.Option(
            "--calibration",
            help="Plot how often the labels of each probability are right (test examples).",
        ),
    ] = False
    beam: Beam = None
    checkpoint: Checkpoint = None
    device: Device = "auto"
    threads: Threads = None
    precision: Precision = "float32"


def _run(options: Plot) -> None:
    """Run the command."""
    from heedful.inference.files import check_output
    from heedful.viewing.figures import check_format

    if options.output is not None:
        check_format(options.output)
    check_output(options.output)
    if options.curves:
        refuse_unused(options, {"run", "sentence", "output", "curves"}, "--curves")
        _plot_curves(options.run, options.sentence, options.output)
        return
    if options.calibration:
        used = {"run", "sentence", "output", "calibration", "head", "checkpoint", "device"}
        refuse_unused(options, {*used, "threads", "precision"}, "--calibration")
        _plot_calibration(options)
        return
    if options.links and (options.output is None or options.heads):
        raise UserError(_LINKS)
    which = (options.heads, options.layer, options.name)
    if options.distances and (any(which[:2]) or options.links or options.tokens):
        raise UserError(_DISTANCES)
    if options.sentence is None:
        raise UserError('nothing to plot: give a sentence in quotes ("…"), or --curves')
    if not options.sentence.strip():
        raise UserError("the sentence is empty; give a text")
    from heedful.tasks.spec import spec_of_run

    use_threads(options.threads)
    spec = spec_of_run(options.run)[1].task_of_head(options.run, options.head)
    search = spec.search_options(options.run, options.beam, "heedful plot")
    predictor = spec.load(options.run, head=options.head, **opening_of(options))
    if options.distances and options.name != "?":
        trace = spec.trace if search is None else type(predictor).trace
        source = spec.read_argument(options.sentence)
        how: dict[str, Any] = {"relevance": False} if search is None else {"options": search}
        _plot_distances(
            trace(predictor, source, options.target, **how), options.name, options.output
        )
        return
    if search is None:
        source = spec.read_argument(options.sentence)
        seen = spec.trace(predictor, source, options.target, relevance=False)
        _plot_trace(seen, options.output, which, options.links)
    elif options.tokens or which != (False, None, None):
        texts = options.sentence, options.target
        _plot_tokens(predictor, texts, options.output, search, which, options.links)
    else:
        texts = options.sentence, options.target
        _plot_words(predictor, texts, options.output, search, options.links)


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_command(app, "plot", Plot, _run)


def _plot_curves(run: Path, sentence: str | None, output: Path | None) -> None:
    from heedful.runs.opening import open_run
    from heedful.viewing.curves import curve_figure, read_records
    from heedful.viewing.figures import save_figure

    if sentence is not None:
        raise UserError("--curves cannot be combined with a sentence; leave one of them out")
    if output is None:
        raise UserError("--curves needs --output FILE that ends in .png, .svg or .pdf")
    opened = open_run(run)
    records = read_records(opened.metrics_file)
    chosen = opened.chosen().step if opened.checkpoints() else None
    save_figure(curve_figure(records, str(run), chosen), output)


def _plot_calibration(options: Plot) -> None:
    """Draw or print how often labels are right, by their probability."""
    from heedful.tasks.spec import Opening, spec_of_run

    if options.sentence is not None:
        raise UserError("--calibration cannot be combined with a sentence; leave one of them out")
    use_threads(options.threads)
    run, spec = spec_of_run(options.run)
    found = spec.calibration(run, options.head, Opening(**opening_of(options)))
    if options.output is None:
        from heedful.evaluation.tables import draw

        draw([found.table()])
        return
    from heedful.viewing.figures import save_figure
    from heedful.viewing.reliability import reliability_figure

    save_figure(reliability_figure(found, str(options.run)), options.output)


def _plot_words(
    translator: "Translator",
    texts: tuple[str, str | None],
    output: Path | None,
    search: "SearchOptions",
    links: bool,
) -> None:
    from heedful.evaluation.forced_alignment import align_translations
    from heedful.inference import Axis

    sentence, target = texts
    if target is None:
        found = translator.translate([sentence], options=search, alignments=True)
        target, alignment = found[0].text, found[0].alignment
    else:
        alignment = align_translations(translator, [sentence], [target])[0]
    if alignment is None or not alignment.soft.numel():
        raise UserError("nothing to align: the sentence or its translation has no words")
    words = Axis("tokens", sentence.split())
    _finish(alignment.soft, target.split(), words, target, output, links)


def _plot_tokens(
    translator: "Translator",
    texts: tuple[str, str | None],
    output: Path | None,
    search: "SearchOptions",
    which: Which,
    links: bool,
) -> None:
    from heedful.viewing.figures import save_figure
    from heedful.viewing.trace_view import cross_maps, map_rows, trace_figure

    heads, layer, name = which
    seen = translator.trace(*texts, options=search)
    if name == "?":
        print("\n".join(each.name for each in seen.maps))
        return
    across = cross_maps(seen)
    rule = translator.rules[0]
    usual = None if rule is None else rule.where
    if name is None and layer is None:
        if usual is None:
            raise UserError(
                "this model has no attention to its source, so there is nothing to plot"
            )
        name = usual.module
    elif name is None:
        if layer is None or not 1 <= layer <= len(across):
            raise UserError(
                f"--layer {layer}: this model has {len(across)} layers with cross-attention"
            )
        name = across[layer - 1]
    # `heads` and `shift` of the alignment rule hold for its own module only. In other modules, a
    # row is the step that produces a token.
    own = usual if usual is not None and usual.module == name else None
    shift = own.shift if own else 0
    if output is not None:
        chosen = None if heads or own is None else own.heads
        figure = trace_figure(seen, name, apart=heads, heads=chosen, shift=shift, links=links)
        save_figure(figure, output)
        return
    if heads:
        raise UserError(_HEADS)
    weights, queries = map_rows(seen, seen[name], shift)
    chosen_heads = list(own.heads) if own is not None and own.heads else list(range(len(weights)))
    _finish(weights[chosen_heads].mean(0), queries, seen.axes[seen[name].key_axis], None, None)


def _plot_trace(seen: "Trace", output: Path | None, which: Which, links: bool) -> None:
    """Plot one map of a trace, by default that of the last layer."""
    from heedful.viewing.figures import save_figure
    from heedful.viewing.trace_view import cross_maps, map_rows, trace_figure

    heads, layer, name = which
    names = [each.name for each in seen.maps]
    if name == "?":
        print("\n".join(names))
        return
    layers = cross_maps(seen) or names
    if not layers:
        raise UserError("this model has no attention, so there is nothing to plot")
    if layer is not None and not 1 <= layer <= len(layers):
        raise UserError(f"--layer {layer}: this model has {len(layers)} maps")
    name = name or layers[-1 if layer is None else layer - 1]
    if output is not None:
        save_figure(trace_figure(seen, name, apart=heads, links=links), output)
        return
    if heads:
        raise UserError(_HEADS)
    weights, queries = map_rows(seen, seen[name])
    _finish(weights.mean(0), queries, seen.axes[seen[name].key_axis], None, None)


def _plot_distances(seen: "Trace", name: str | None, output: Path | None) -> None:
    """Draw or print the distances of all heads that attend between the axes of a map."""
    from heedful.evaluation.head_distances import head_distances

    found = head_distances(seen, name)
    for number, own in enumerate(found.maps, start=1):
        print(f"{number}: {own}")
    if output is None:
        width = max(4, *map(len, found.heads))
        print(" ".join(f"{head:>{width}}" for head in ["", *found.heads]))
        for head, row in zip(found.heads, found.matrix.tolist(), strict=True):
            print(" ".join([f"{head:>{width}}", *(f"{value:{width}.2f}" for value in row)]))
        return
    from heedful.viewing.figures import save_figure
    from heedful.viewing.heatmap import alignment_figure

    title = "Jensen–Shannon distance of heads"
    save_figure(alignment_figure(found.matrix, found.heads, found.heads, title), output)


def _finish(
    weights: Any,
    queries: list[str],
    keys: "Axis",
    text: str | None,
    output: Path | None,
    links: bool = False,
) -> None:
    if text is not None:
        print(text)
    if output is None:
        import shutil
        import sys

        from heedful.viewing.terminal import render_rows

        unicode = (sys.stdout.encoding or "").lower().startswith("utf")
        width = shutil.get_terminal_size().columns
        print(render_rows(weights, queries, keys, width, plain=not unicode))
        return
    from heedful.viewing.figures import save_figure
    from heedful.viewing.heatmap import alignment_figure
    from heedful.viewing.links_figure import links_figure

    draw = links_figure if links else alignment_figure
    save_figure(draw(weights, queries, keys.labels), output)
