"""Trains small models with FSDP2; its functions are called in several processes."""

import traceback
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from heedful.attention import watch
from heedful.basics.device import autocast
from heedful.basics.errors import UserError
from heedful.data.positions import SINGLE, Position, Rank, of_rank
from heedful.layers.checkpointing import checkpoint_layers
from heedful.models.bytenet import ByteNet, ByteNetSettings
from heedful.models.convolutional import ConvolutionalEncoderDecoder, ConvolutionalSettings
from heedful.models.pairs import PairModel, Source
from heedful.runs.settings import LoopSettings
from heedful.training.fsdp import FullySharded, shard
from heedful.training.optimisers import build_optimiser
from heedful.training.parameter_groups import groups_of
from heedful.training.processes import Processes, join
from heedful.training.protocol import Loss, TaskDefaults, Validation
from heedful.training.shards import Shards, random_numbers, seed_of
from heedful.training.strategies import BatchLoss, Strategy
from heedful.training.train import train
from shards_help import loop_of
from test_inference import transformer

CPU = torch.device("cpu")
SHARDS = 2
SMALL = {"hidden_size": 6, "ffn_size": 10, "heads": 2}


class Pairs(NamedTuple):
    """A batch: tokens of both sides."""

    source: Source
    target: Tensor
    weight: int

    def to(self, device: torch.device) -> "Pairs":
        return self


class Copying(TaskDefaults):
    """Predicts random tokens; a part of its loss is of attention weights, if there are any."""

    def __init__(
        self, model: PairModel, watching: bool = False, precision: str = "float32"
    ) -> None:
        self.model, self.watching, self.precision = model, watching, precision

    def batches(self, position: Position, rank: Rank = SINGLE) -> Iterator[tuple[Position, Pairs]]:
        return of_rank(self._order(position), rank)

    def _order(self, position: Position) -> Iterator[tuple[Position, Pairs]]:
        while True:
            chance = torch.Generator().manual_seed(position.index)
            position = Position(position.seed, position.epoch, position.index + 1)
            rows, length = 2 + position.index % 3, 3 + position.index % 4
            tokens = torch.randint(4, 300, (2, rows, length), generator=chance)
            source = Source(tokens[0], torch.full((rows,), length))
            yield position, Pairs(source, tokens[1], rows * length)

    def loss(self, batch: Pairs) -> Loss:
        lower = autocast(CPU, self.precision if self.model.training else "float32")
        seeing = watch(self.model, [] if not self.watching else None, keep_gradients=True)
        with lower, seeing as seen:
            states = self.model.states(batch.source, batch.target)
        logits = states.to(self.model.output_table.dtype) @ self.model.output_table.T
        total = F.cross_entropy(logits.flatten(0, 1), batch.target.flatten(), reduction="sum")
        for calls in seen.values():
            total = total + calls[0].square().sum()
        return Loss(total, {"loss": total.detach()})

    def validate(self) -> Validation:
        with torch.no_grad():
            self.model.eval()
            _, batch = next(self._order(Position(1, 0, 1000)))
            logits, state = self.model.step(batch.target[:, 0], self.model.start(batch.source))
            logits, _ = self.model.step(batch.target[:, 1], state)
            return Validation({"loss": float(self.loss(batch).total + logits.sum())}, [])


def model_of(name: str, **options: Any) -> PairModel:
    """A small model in float64."""
    torch.manual_seed(1)
    built: PairModel
    if name == "convolutional":
        table = {"hidden_size": 6, "embedding_size": 6, "max_length": 20, **options}
        table |= {"encoder_layers": 2, "decoder_layers": 2}
        settings = ConvolutionalSettings.model_validate(table)
        built = ConvolutionalEncoderDecoder(settings, 380, 380)
    elif name == "bytenet":
        table = {"encoder_layers": 2, "decoder_layers": 2, "hidden_size": 6, "max_length": 20}
        built = ByteNet(ByteNetSettings.model_validate(table), 380, 380)
    elif name == "shared":
        more = {"positions": "shaw", "share_positions": True, "tied_embeddings": "none"}
        built = transformer(**SMALL | more | options)
    else:
        built = transformer(**SMALL | options, tied_embeddings="all", pre_norm=True)
    return built.double()


class InTurn(Shards):
    """The definition: shard after shard in one process."""

    def gradients(self, step: int, batches: Any, weight: float) -> list[BatchLoss]:
        losses = []
        for number, own in self.own_shards(batches):
            for place, batch in enumerate(own):
                with random_numbers(seed_of(self.seed, step, number, place)):
                    losses += self.forward_backward(batch, weight, last=True)
        return losses


def steps(name: str, sharded: bool, count: int = 2, **options: Any) -> dict[str, Any]:
    """Weights, norms and sizes after some steps, with two batches per shard."""
    again, watching = options.pop("again", False), options.pop("watching", False)
    gather = options.pop("gather", None)
    precision = "float32" if gather is None else "bfloat16"
    model = model_of(name, **options)
    task = Copying(model if gather is None else model.float(), watching, precision)
    if again:
        checkpoint_layers(task.model)
    settings = LoopSettings(learning_rate=0.01, warmup_steps=0)
    processes = join() if sharded else Processes()
    shared = {"seed": 1, "shards": SHARDS, "processes": processes}
    how = {} if gather is None else {"gather_precision": gather}
    module = shard(task, CPU, precision, **how) if sharded else None
    groups = groups_of(task.model, settings)
    parameters = [one for group in groups for one in group.parameters]
    optimiser = build_optimiser(groups, settings)
    given = (task, parameters, CPU, torch.amp.GradScaler("cpu", enabled=False))
    strategy: Strategy = (
        FullySharded(*given, module=module, **shared) if module else InTurn(*given, **shared)
    )
    task.model.train()
    batches = task.batches(Position(1), strategy.rank)
    norms = []
    for step in range(1, count + 1):
        group = [batch for _, batch in (next(batches) for _ in range(2 * strategy.rank.each))]
        weight = strategy.total(sum(batch.weight for batch in group))
        if step == 1:
            operations = strategy.operations(group[0])
            optimiser.zero_grad(set_to_none=True)
        with counted_gathers() as sent:
            losses = strategy.gradients(step, group, weight)
        total = strategy.reduce({"loss": sum(float(one.loss.total) for one in losses)})
        norms += [float(strategy.clip(0.5)), total["loss"]]
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
    with strategy.whole_model():
        figures = task.validate().figures
    with strategy.whole_model():
        assert figures == task.validate().figures
    state = [one for values in optimiser.state.values() for one in values.values()]
    return {
        "weights": {name: whole(one) for name, one in task.model.state_dict().items()},
        "norms": norms,
        "sent": sent,
        "figures": figures,
        "operations": operations,
        "held": sum(local(one).numel() for one in state),
        "parameters": sum(local(one).numel() for one in task.model.parameters()),
    }


@contextmanager
def counted_gathers() -> Iterator[dict[str, int]]:
    """Bytes that this process sends in all-gathers, by type."""
    sent: dict[str, int] = {}

    def counted(known: Any) -> Any:
        def gather(whole: Tensor, own: Tensor, *given: Any, **named: Any) -> Any:
            before = dict(sent)
            found = known(whole, own, *given, **named)
            if sent == before:  # one of them calls the other
                sent[str(own.dtype)] = sent.get(str(own.dtype), 0) + own.nbytes
            return found

        return gather

    with ExitStack() as stack:
        for name in ("all_gather_into_tensor", "all_gather_single"):
            if hasattr(dist, name):
                stack.enter_context(patch.object(dist, name, counted(getattr(dist, name))))
        yield sent


def whole(tensor: Tensor) -> Any:
    return (tensor.full_tensor() if isinstance(tensor, DTensor) else tensor).detach().numpy()


def local(tensor: Tensor | nn.Parameter) -> Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


JOBS: dict[str, tuple[str, dict[str, Any]]] = {
    "tied": ("tied", {"dropout": 0.3}),
    "shared positions": ("shared", {}),
    "convolutional": ("convolutional", {"dropout": 0.0}),
    "bytenet": ("bytenet", {}),
    "watched": ("tied", {"dropout": 0.3, "again": True, "watching": True}),
}
WIDE = {"hidden_size": 32, "ffn_size": 64}  # so that biases and norms are a small part
ROUNDED: dict[str, tuple[str, dict[str, Any]]] = {
    f"{model}, {gather}": (model, {"dropout": 0.3, "gather": gather, **WIDE})
    for model in ("tied", "shared")
    for gather in ("float32", "bfloat16")
}
"""The same steps with products in bfloat16 and two types of gathering."""


def all_steps(names: list[str]) -> dict[str, Any]:
    """The results of jobs with FSDP2; an error's text in place of a failed one."""
    join()
    found: dict[str, Any] = {}
    for name in names:
        model, options = (JOBS | ROUNDED)[name]
        try:
            found[name] = steps(model, True, **options)
        except Exception:  # noqa: BLE001 - the parent reports it
            found[name] = traceback.format_exc()
    return found


def trained_parts(jobs: list[tuple[Any, ...]]) -> list[Any]:
    """Whether each run ended, after training; an error's text in place of a failed one."""
    join()
    found: list[Any] = []
    for run, out, settings, stop in jobs:
        try:
            found.append(_trained(run, out, settings, stop))
        except UserError as error:
            found.append(str(error))
    return found


def _trained(run: Path, out: Path, settings: dict[str, Any], stop: int | None) -> bool:
    loop = loop_of(run, out, **settings)
    add = loop._sums.add

    def add_and_stop(*given: Any) -> None:
        add(*given)
        loop.interrupted |= loop.progress.step == stop

    loop._sums.add = add_and_stop  # type: ignore[method-assign]
    with loop.report:
        return loop.run()


def train_a_run(recipe: dict[str, Any], out: Path, data: Path) -> bool:
    """Train a recipe from the start, as the command line does."""
    return train(recipe, out, data=data)


def work_of_two(
    names: list[str], jobs: list[tuple[Any, ...]], run: tuple[Any, ...] | None = None
) -> Any:
    """All that the tests need from two processes."""
    return all_steps(names), trained_parts(jobs), train_a_run(*run) if run else None
