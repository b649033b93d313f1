"""Builds the model of a run, the terms of its loss, and its translator."""

from collections.abc import Sequence
from pathlib import Path

from torch import nn

from heedful.basics.device import check_precision, choose_device
from heedful.basics.errors import UserError
from heedful.data.batching import TokenBatches
from heedful.data.columns import Columns
from heedful.data.mapped import Integers
from heedful.data.store import Store
from heedful.data.subword_sampling import SubwordSampler
from heedful.decoding import SearchOptions
from heedful.inference.fastest_precision import resolve_precision
from heedful.inference.translator import Translator
from heedful.models import PairModel, build_model
from heedful.runs.building import build, load, outline
from heedful.runs.checkpoints import load_model_tensors, open_checkpoint
from heedful.runs.run import Run
from heedful.runs.vectors import load_vectors
from heedful.tasks.pairs.alignment_rules import guided_source, rule_of
from heedful.tasks.pairs.guided import GuidedAlignment
from heedful.tasks.pairs.recipe import EvaluationSettings, TrainingSettings
from heedful.tasks.pairs.run import PairRun, open_pair_run
from heedful.tasks.teaching import initial_layers, load_teacher
from heedful.training.reinforce import Reinforce, rewarded_modules
from heedful.training.terms import Term


def outline_run_model(run: PairRun) -> PairModel:
    """The recipe's model on the device ``meta``: see :func:`heedful.runs.building.outline`."""
    return outline(run, lambda: _fresh(run))


def build_run_model(run: PairRun) -> PairModel:
    """The recipe's model with fresh weights: see :func:`heedful.runs.building.build`."""
    return build(run, lambda: _fresh(run), lambda model: _frozen(run, model))


def load_run_model(run: PairRun, checkpoint: str | int | None = None) -> PairModel:
    """The run's model with trained weights: see :func:`heedful.runs.building.load`."""
    return load(run, lambda: _fresh(run), lambda model: _frozen(run, model), checkpoint)


def load_pair_model(run: Run) -> PairModel:
    """The trained model of any run for pairs of texts."""
    return load_run_model(open_pair_run(run.path))


def _fresh(run: PairRun) -> PairModel:
    sizes = run.facts["vocabulary"]
    return build_model(run.recipe.model, sizes["source"], sizes["target"])


def _frozen(run: PairRun, model: PairModel) -> list[nn.Embedding]:
    """The embedding tables that the recipe freezes."""
    vectors = run.recipe.vectors
    kept = vectors.files if vectors is not None and vectors.frozen else ()
    return [_embeddings(model)[side] for side in kept]


def load_run_start(run: PairRun, model: PairModel) -> None:
    """Load the initial weights of a run: those of another run, or pre-trained word vectors.

    Raises:
        UserError: weights or vectors are missing or damaged.
    """
    if run.facts.get("started_from") is not None:
        point = open_checkpoint(run.start_folder)
        load_model_tensors(model, point.weights(), point.path)
    teacher = run.recipe.training.teacher
    if teacher is not None and teacher.initialise:
        found = load_teacher(run, teacher, load_pair_model)
        model.load_state_dict(initial_layers(model, found, teacher.run))
    if run.facts.get("vectors") is not None:
        load_vectors(run.path, _embeddings(model))


def _embeddings(model: PairModel) -> dict[str, nn.Embedding]:
    """The tables of token vectors of each side that has one."""
    found = {side: getattr(model, f"{side}_embedding", None) for side in ("source", "target")}
    return {side: table for side, table in found.items() if table is not None}


def loss_terms(run: PairRun, model: PairModel, training: TrainingSettings) -> list[Term]:
    """The terms that are added to the cross-entropy."""
    terms: list[Term] = []
    guided = guided_source(run.recipe, model)
    if guided is not None:
        terms.append(GuidedAlignment(guided, run.recipe.training.guided_alignment.weight))
    rewarded = rewarded_modules(model)
    if rewarded:
        terms.append(Reinforce(rewarded, training.reinforce))
    return terms


def train_batches(run: PairRun, training: TrainingSettings) -> TokenBatches:
    """The batches of a run's training pairs, segmented anew if the recipe says so.

    Raises:
        UserError: words of the run's vocabulary cannot be segmented anew.
    """
    setting, window = training.subword_setting, training.shuffle_window
    store = Store.open(run.train_folder, verified=run.verifies_when_read)
    if setting is None:
        return TokenBatches(store, training.batch_tokens, window=window)
    tokenisers, strength = run.tokenisers(), getattr(training, setting)
    source = SubwordSampler(tokenisers.source, strength)
    samplers = {
        "source": source,
        "target": source if tokenisers.shared else SubwordSampler(tokenisers.target, strength),
    }
    longest = run.recipe.model.max_length - 1

    def resample(columns: Columns, rows: Integers, key: str) -> Columns:
        return {
            side: samplers[side].sample(column, rows, f"{side} {key}", longest)
            for side, column in columns.items()
        }

    return TokenBatches(store, training.batch_tokens, resample=resample, window=window)


def search_options(evaluation: EvaluationSettings) -> SearchOptions:
    """The search options of a recipe."""
    return SearchOptions(beam=evaluation.beam, length_penalty=evaluation.length_penalty)


def load_translator(
    paths: Sequence[str | Path],
    *,
    device: str = "auto",
    precision: str = "float32",
    checkpoint: str | int | None = None,
    make: type[Translator] = Translator,
) -> Translator:
    """The translator of a run, or an ensemble of several runs with the same vocabulary.

    Args:
        paths: folders of runs.
        device: ``auto``, ``cpu``, ``cuda`` or ``mps``.
        precision: ``float32``, ``bfloat16``, ``float16`` or ``int8``; ``auto`` measures which of
            float32 and bfloat16 is faster, and prints it.
        checkpoint: ``best``, ``last``, ``average`` or a step; the run's own choice if None.
        make: the class of the translator.

    Raises:
        UserError: a folder is not a run of a translator, or the vocabularies differ.
    """
    chosen_device = choose_device(device)
    chosen_precision = check_precision(precision, chosen_device, int8=True)
    runs = [open_pair_run(path) for path in paths]
    tokenisers = runs[0].tokenisers()
    for run in runs[1:]:
        require_same_vocabulary(runs[0], run)
    models, rules = [], []
    for run in runs:
        model = load_run_model(run, checkpoint)
        models.append(model.to(chosen_device).eval())
        known = rule_of(run, model)
        rules.append(None if known is None else known.rule)
    return make(
        models,
        tokenisers,
        device=chosen_device,
        precision=resolve_precision(models[0], chosen_precision, chosen_device),
        options=search_options(runs[0].recipe.evaluation),
        source_language=runs[0].recipe.data.source,
        target_language=runs[0].recipe.data.target,
        rules=rules,
        protect=runs[0].recipe.data.rules,
    )


def require_same_vocabulary(one: PairRun, other: PairRun) -> None:
    """Raise UserError unless two runs have the same tokenisers and the same ``data.protect``."""
    if _fingerprint(one) != _fingerprint(other):
        raise UserError(
            f"{one.path} and {other.path} have different vocabularies; they must have the same "
            "tokeniser (train the second with --start-from the first)"
        )
    if one.recipe.data.protect != other.recipe.data.protect:
        raise UserError(
            f"{one.path} and {other.path} protect different spans; they must have the same "
            "data.protect"
        )


def _fingerprint(run: PairRun) -> str:
    return str(run.facts["vocabulary"]["fingerprint"])
