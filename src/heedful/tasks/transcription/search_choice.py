"""How the search of a run is changed by options of ``heedful transcribe`` and ``evaluate``."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from heedful.basics.errors import UserError
from heedful.basics.settings import check
from heedful.tasks.options import Beam

_WEIGHT = 0.3
"""Of a language model."""


@dataclass(frozen=True)
class SearchChoice:
    """What replaces the settings of the run."""

    beam: Beam = None
    language_model: Annotated[
        Path | None,
        typer.Option(
            "--language-model",
            help="A run of a language model over the same units, for the search.",
        ),
    ] = None
    language_weight: Annotated[
        float | None,
        typer.Option(
            "--language-weight",
            min=0.0,
            max=1000.0,
            help="Weight of the language model; default: 0.3.",
        ),
    ] = None
    ctc_weight: Annotated[
        float | None,
        typer.Option(
            "--ctc-weight",
            min=0.0,
            max=1.0,
            help="Weight of CTC in the search, for a model with CTC beside a decoder; "
            "default: that of the recipe.",
        ),
    ] = None


def choose_search(
    predictor: Any, choice: SearchChoice, *, nbest: int = 1, device: str = "auto"
) -> dict[str, Any]:
    """Change how a predictor searches.

    Args:
        predictor: the predictor.
        choice: what replaces the settings of its run.
        nbest: number of texts of each recording.
        device: where a language model computes.

    Returns:
        The settings of the search, for a record of an evaluation.

    Raises:
        UserError: the run or the language model does not fit.
    """
    own = predictor.options.model_dump() | {"nbest": nbest}
    given = {"beam": choice.beam, "ctc_weight": choice.ctc_weight}
    own |= {name: value for name, value in given.items() if value is not None}
    predictor.options = check(type(predictor.options), own, "the options")
    if choice.ctc_weight:
        _check_joint(predictor)
    settings = {name: own[name] for name in given}
    if predictor.recipe.model.outputs != "both":
        del settings["ctc_weight"]  # there is nothing to weigh
    if choice.language_model is not None:
        weight = _WEIGHT if choice.language_weight is None else choice.language_weight
        _use_language(predictor, choice.language_model, weight, device)
        settings |= {"language_model": str(choice.language_model), "language_weight": weight}
    elif choice.language_weight is not None:
        raise UserError("--language-weight needs --language-model")
    return settings


def _check_joint(predictor: Any) -> None:
    from heedful.tasks.transcription.recipe import require_both

    try:
        require_both(predictor.recipe.model, "--ctc-weight")
    except ValueError as error:
        raise UserError(str(error)) from None


def _use_language(predictor: Any, path: Path, weight: float, device: str) -> None:
    from heedful.tasks.spec import spec_of_run

    _, spec = spec_of_run(path)
    if spec.name != "language-model":
        raise UserError(f"{path} is a run for {spec.name}, no language model")
    predictor.with_language(spec.load(path, device=device), weight)
