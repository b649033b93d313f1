"""The library's front door."""

from pathlib import Path
from typing import Any

from heedful.basics.errors import UserError
from heedful.inference.trace import Trace
from heedful.inference.translation import Translation
from heedful.inference.translator import Translator
from heedful.interop.engines import load_predictor, load_with_engine


def load(
    run: str | Path,
    *more: str | Path,
    head: str | None = None,
    device: str = "auto",
    precision: str = "float32",
    checkpoint: str | int | None = None,
    engine: str = "torch",
    quantization: str | None = None,
) -> Any:
    """The predictor of a run, whatever its task; all have ``predict``.

    A translator for a run that translates, a classifier for one that classifies, and so on.
    ``load_translator``, ``load_classifier``, ``load_tagger``, ``load_filler`` and
    ``load_generator`` do the same for one task, with a typed result.

    Args:
        run: a folder that ``heedful train`` made; with CTranslate2 also what was exported from one.
        more: further runs of translators with the same vocabulary, for their ensemble.
        head: what is decided, of a run that learnt several things.
        device: ``auto``, ``cpu``, ``cuda`` or ``mps``.
        precision: of matrix products: ``float32``, ``bfloat16``, ``float16``, ``int8``, or
            ``auto``, the faster of float32 and bfloat16, which is printed on standard error.
        checkpoint: ``best``, ``last``, ``average`` or a step; the run's own choice if None.
        engine: ``torch``, our own models and search, or ``ctranslate2``, for one Transformer
            (``pip install "heedful[ctranslate2]"``); traces and given beginnings stay ours.
        quantization: what CTranslate2 computes in; by ``precision`` if None.

    Raises:
        UserError: a folder is no run, the vocabularies differ, or the engine cannot take it or is
            missing.
    """
    return load_predictor(
        run,
        *more,
        head=head,
        device=device,
        precision=precision,
        checkpoint=checkpoint,
        engine=engine,
        quantization=quantization,
    )


def load_translator(
    run: str | Path,
    *more: str | Path,
    device: str = "auto",
    precision: str = "float32",
    checkpoint: str | int | None = None,
    engine: str = "torch",
    quantization: str | None = None,
) -> Translator:
    """The translator of a run, or the ensemble of several; the arguments are those of :func:`load`.

    Raises:
        UserError: a folder is no run of a translator, the vocabularies differ, or the engine
            cannot take it or is missing.
    """
    return load_with_engine(
        [Path(run), *map(Path, more)],
        engine=engine,
        quantization=quantization,
        model=True,
        device=device,
        precision=precision,
        checkpoint=checkpoint,
    )


def view(*results: Trace | Translation) -> Any:
    """Show what was attended to, in a notebook (``pip install "heedful[notebook]"``).

    Args:
        results: traces (``translator.trace(text)``, ``Trace.load(path)``, or ``Trace.of(…)`` of any
            model's weights), or translations made with ``alignments=True``; two or more are shown
            side by side.

    Raises:
        UserError: a result is neither, the packages are not there, or a translation has no
            alignment.
    """
    from heedful.viewing.notebook import widget

    for one in results:
        if not isinstance(one, Trace | Translation):
            raise UserError(f"view shows traces and translations, not a {type(one).__name__}")
    traces = [one.trace() if isinstance(one, Translation) else one for one in results]
    return widget(traces)
