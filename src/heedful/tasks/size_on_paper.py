"""The size of a model on paper: parameters, memory, operations, and the time and cost of training.

Models are built on the device ``meta``, without memory. Those whose steps depend on values, such as
recurrent ones, are computed once on the CPU.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from torch import nn

from heedful.basics.errors import UserError
from heedful.runs.model_size import TRAINED_COPIES, on_meta, require_room
from heedful.runs.recipe import check_recipe, find_recipe, read_recipe
from heedful.runs.settings import Recipe
from heedful.tasks.cluster_on_paper import CardStep, Cluster, on_cluster
from heedful.tasks.sketch import PaperSize, Sketch
from heedful.tasks.spec import spec_named, specs
from heedful.training.on_paper import StepCost, real_step_cost, step_cost
from heedful.training.step_time import Units, units_of

CARDS: Mapping[str, float] = {
    "k80": 2.8e12,
    "k40": 3.7e12,
    "m40": 6.0e12,
    "p100": 9.5e12,
    "v100": 125e12,
    "t4": 65e12,
    "a100": 312e12,
    "l4": 121e12,
    "rtx-4090": 165e12,
    "h100": 989e12,
    "h200": 989e12,
}
"""Card → FLOP/s at most. The first four in float32 (Vaswani et al. 2017, section 6.1, footnote 5),
the others with dense products in half precision (NVIDIA's data sheets; H100 and H200 SXM)."""
_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
_WEIGHT = 4
"""Bytes of a weight, a gradient and a moment, which training keeps in float32."""
_COPIES = 3
"""Of the weights in a step on the CPU: in float32, weights and gradients in float64."""
_TOO_LARGE = ("allocate memory", "Storage size calculation overflowed")
"""Parts of PyTorch's messages about tensors that are too large."""
_HOUR = 3600
PETAFLOP_DAY = 1e15 * 24 * _HOUR


@dataclass(frozen=True)
class Assumptions:
    """What the numbers are for.

    Attributes:
        batch: rows, such as sequences, that are computed at once.
        length: of a row, in tokens or what the task counts; that of the size or the recipe if None.
        tokens: tokens of the training, or other units; those of the size or the recipe if None.
        precision: of products and activations.
        optimiser: ``adam``, ``adamw`` or ``sgd``; the recipe's if None.
        checkpointing: whether layers keep their inputs only.
        mfu: model FLOPs utilisation, in (0, 1].
        speed: FLOP/s of a card at most; no time is computed if None.
        cards: the number of cards.
        price: of a card for an hour; no cost is computed if None.
        cluster: how the cards train together. If None, cards do not wait for each other.
    """

    batch: int = 1
    length: int | None = None
    tokens: int | None = None
    precision: str = "bfloat16"
    optimiser: str | None = None
    checkpointing: bool = False
    mfu: float = 0.4
    speed: float | None = None
    cards: int = 1
    price: float | None = None
    cluster: Cluster | None = None


class _Named(NamedTuple):
    recipe: Recipe
    length: int | None
    tokens: int | None
    source: str | None
    """Where the numbers are from; None for a recipe, which says them itself."""


def paper_sizes() -> dict[str, tuple[str, PaperSize]]:
    """Name → the task and the size, of all tasks."""
    return {name: (spec.name, size) for spec in specs() for name, size in spec.paper_sizes.items()}


def size_on_paper(name: str, assumptions: Assumptions) -> dict[str, Any]:
    """The numbers as plain values.

    Args:
        name: a size of :func:`paper_sizes`, or a recipe.
        assumptions: what the numbers are for.

    Raises:
        UserError: there is no such size or recipe, its task has no size on paper, the settings do
            not fit, the length does not fit the model, or a step needs too much memory.
    """
    named, sketch, length, units, embedded, cost = _sized(name, assumptions)
    parameters = units.total
    tokens = assumptions.tokens or named.tokens
    count = sketch.units(assumptions.batch, length)
    operations = {
        "forward": cost.forward / count,
        "training": (cost.forward + cost.backward) / count,
        "with_checkpointing": (cost.forward + cost.backward + cost.repeated) / count,
        "6n": 6 * parameters,
    }
    optimiser = assumptions.optimiser or str(named.recipe.training.optimiser)
    memory = _memory(parameters, cost, optimiser, assumptions)
    cluster = None
    if assumptions.cluster is not None:
        if assumptions.speed is None:
            raise UserError("--strategy needs the speed of a card: give --card")
        own = _card_step(units, cost, memory, optimiser, assumptions)
        cluster = on_cluster(own, assumptions.cluster, assumptions.cards, count)
    efficiency = 1.0 if cluster is None else cluster["efficiency"]
    training = None if tokens is None else _training(tokens, operations, assumptions, efficiency)
    return {
        "size": name,
        "task": named.recipe.task,
        "model": named.recipe.as_tables()["model"],
        "source": named.source,
        "parameters": parameters,
        "embedding_parameters": embedded,
        "vocabulary": sketch.vocabulary,
        "unit": sketch.unit,
        "assumptions": {
            "batch": assumptions.batch,
            "length": None if sketch.length is None else length,
            "counted": sketch.counted,
            "rows": sketch.described(assumptions.batch, length),
            "precision": assumptions.precision,
            "optimiser": optimiser,
            "checkpointing": assumptions.checkpointing,
        },
        "memory": memory,
        "operations_per_token": operations,
        "cluster": cluster,
        "training": training,
    }


def _named(name: str) -> _Named:
    known = paper_sizes()
    if name in known:
        task, size = known[name]
        tables = {"task": task, "data": {"train": "on-paper"}, **size.tables}
        return _Named(check_recipe(tables, name), size.length, size.tokens, size.source)
    try:
        path = find_recipe(name)
    except UserError as error:
        raise UserError(f"no size '{name}': {error}; sizes are {', '.join(known)}") from error
    return _Named(check_recipe(read_recipe(path), str(path)), None, None, None)


class _Sized(NamedTuple):
    named: _Named
    sketch: Sketch
    length: int
    units: Units
    embedded: int
    cost: StepCost


def _sized(name: str, assumptions: Assumptions) -> _Sized:
    named = _named(name)
    sketch, model = _sketch(named.recipe)
    length = _length(name, sketch, model, assumptions.length or named.length)
    if named.source is None:
        named = _as_the_recipe_says(named, sketch, length)
    units, embedded = units_of(model), _tables(model, sketch.vocabulary)
    cost = _cost(name, sketch, model, assumptions.batch, length)
    return _Sized(named, sketch, length, units, embedded, cost)


def _sketch(recipe: Recipe) -> tuple[Sketch, nn.Module]:
    """The sketch, and its model on the device ``meta``."""
    try:
        sketch = spec_named(recipe.task).sketch(recipe)
        return sketch, on_meta(sketch.build)
    except ValueError as error:
        raise UserError(f"the recipe's [model]: {error}") from error


def _length(name: str, sketch: Sketch, model: nn.Module, given: int | None) -> int:
    """The length of a row; 1 if all rows have one size."""
    if sketch.length is None:
        if given is not None:
            raise UserError(f"--length {given}: every {sketch.row} has one size; leave it out")
        return 1
    length, longest = given or sketch.length, sketch.longest
    if longest is None:
        longest = getattr(getattr(model, "encoder", model), "max_length", None)
    if longest is not None and length > longest:
        counted = sketch.counted.partition(",")[0]
        raise UserError(f"--length {length}: at most {longest:,} {counted} in {name}")
    return length


def _as_the_recipe_says(named: _Named, sketch: Sketch, length: int) -> _Named:
    """The same with the units of all training steps."""
    loop, rows = named.recipe.training, sketch.rows_of_batch
    batch = loop.batch_tokens if rows is None else sketch.units(rows(length), length)
    step = batch * loop.accumulation_steps * loop.virtual_shards
    source = f"{loop.max_steps:,} steps of {step:,} {sketch.unit}s, as the recipe says"
    return named._replace(tokens=loop.max_steps * step, source=source)


def card_step(name: str, assumptions: Assumptions) -> CardStep:
    """What a card computes in a step, for several predictions of one size.

    Args:
        name: as for :func:`size_on_paper`.
        assumptions: those of a card, with its speed.
    """
    named, _, _, units, _, cost = _sized(name, assumptions)
    optimiser = assumptions.optimiser or str(named.recipe.training.optimiser)
    memory = _memory(units.total, cost, optimiser, assumptions)
    return _card_step(units, cost, memory, optimiser, assumptions)


def _card_step(
    units: Units,
    cost: StepCost,
    memory: Mapping[str, int | None],
    optimiser: str,
    assumptions: Assumptions,
) -> CardStep:
    return CardStep(
        units,
        cost,
        assumptions.mfu * (assumptions.speed or 0.0),
        _BYTES[assumptions.precision],
        TRAINED_COPIES[optimiser] - 2,
        memory[_kept(assumptions)] or 0,
        assumptions.checkpointing,
    )


def _cost(name: str, sketch: Sketch, model: nn.Module, batch: int, length: int) -> StepCost:
    rows = sketch.described(batch, length)
    try:
        return step_cost(model, lambda: sketch.loss(model, batch, length))
    except RuntimeError as error:  # a step that depends on values, unless it is too large
        _refuse_too_large(error, name, rows)
    require_room(model, name, copies=2 * _COPIES)
    try:
        return real_step_cost(sketch.build, lambda real: sketch.loss(real, batch, length))
    except RuntimeError as error:
        _refuse_too_large(error, name, rows)
        raise


def _refuse_too_large(error: RuntimeError, name: str, rows: str) -> None:
    """Raise UserError if PyTorch's error says that a tensor is too large."""
    if any(part in str(error) for part in _TOO_LARGE):
        raise UserError(
            f"{name}: {rows} need more memory than there is; lower --batch or --length"
        ) from error


def _tables(model: nn.Module, vocabulary: int) -> int:
    """Parameters with a row for each symbol or position, and output tables."""
    found = 0
    embedded = {id(one.weight) for one in model.modules() if isinstance(one, nn.Embedding)}
    for one in model.parameters():
        if id(one) in embedded or (one.dim() == 2 and one.shape[0] == vocabulary):
            found += one.numel()
    return found


def _memory(
    parameters: int, cost: StepCost, optimiser: str, assumptions: Assumptions
) -> dict[str, int | None]:
    """Bytes of a training step."""
    whole, own = parameters * _WEIGHT, _BYTES[assumptions.precision]
    kept = {
        "activations": cost.saved * own // 4,
        "activations_with_checkpointing": (
            None if cost.checkpointed is None else cost.checkpointed * own // 4
        ),
    }
    if assumptions.checkpointing and cost.checkpointed is None:
        raise UserError("--checkpointing is for models that consist of a Transformer's layers")
    moments = (TRAINED_COPIES[optimiser] - 2) * whole
    return {
        "weights": whole,
        "gradients": whole,
        "optimiser": moments,
        **kept,
        "training": 2 * whole + moments + (kept[_kept(assumptions)] or 0),
        "weights_in_inference": parameters * own,
    }


def _kept(assumptions: Assumptions) -> str:
    """Which activations are kept."""
    return "activations_with_checkpointing" if assumptions.checkpointing else "activations"


def _training(
    tokens: int, operations: Mapping[str, float], assumptions: Assumptions, efficiency: float
) -> dict[str, Any]:
    """Operations, time and cost of a training."""
    counted = tokens * operations["training"]
    found: dict[str, Any] = {
        "tokens": tokens,
        "6nd": tokens * operations["6n"],
        "operations": counted,
        "petaflop_days": counted / PETAFLOP_DAY,
    }
    if assumptions.speed is None:
        return found
    seconds = counted / (assumptions.mfu * assumptions.speed * assumptions.cards * efficiency)
    card_hours = seconds * assumptions.cards / _HOUR
    found |= {
        "mfu": assumptions.mfu,
        "flops_per_second": assumptions.speed,
        "cards": assumptions.cards,
        "seconds": seconds,
        "card_hours": card_hours,
        "cost": None if assumptions.price is None else card_hours * assumptions.price,
    }
    return found
