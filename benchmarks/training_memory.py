"""Memory of a training step: activation checkpointing, and FSDP2 on several processes.

    python benchmarks/training_memory.py layers [--layers 24] [--width 128] [--tokens 4096]
    python benchmarks/training_memory.py fsdp [--processes 2] [--layers 12] [--width 512]

The model is a GPT with random data. ``layers`` compares the peak of the process's memory during a
step of Adam, without and with activation checkpointing. ``fsdp`` compares one process with several:
the resident memory between steps (weights and the optimiser's state), the peak during a step, and
the bytes of the optimiser's state. Memory before the model is built is subtracted.
The C allocator is told to return each large block to the system when it is freed. Otherwise freed
blocks of a step that cannot be used again count as well. One thread per process, Linux.
"""

import argparse
import multiprocessing
import os
import socket
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from heedful.data.positions import SINGLE, Position, Rank, of_rank
from heedful.layers.checkpointing import checkpoint_layers
from heedful.models.gpt import Gpt, GptSettings
from heedful.runs.settings import LoopSettings
from heedful.runs.sharded_tensors import is_sharded
from heedful.training.optimisers import build_optimiser
from heedful.training.parameter_groups import groups_of
from heedful.training.processes import join
from heedful.training.protocol import Loss, TaskDefaults, Validation
from heedful.training.strategy_choice import strategy_of
from reporting import machine, said, table
from resident import peak_resident, reset_peak

VOCABULARY, LENGTH = 1000, 128
MIB = 2**20
CPU = torch.device("cpu")


class Tokens(NamedTuple):
    """A batch ``[B, L]``."""

    tokens: Tensor
    weight: int

    def to(self, device: torch.device) -> "Tokens":
        return self


class RandomText(TaskDefaults):
    """Predicts random tokens.

    Args:
        model: the language model.
        tokens: of a batch.
    """

    def __init__(self, model: Gpt, tokens: int) -> None:
        self.model, self.rows = model, max(1, tokens // LENGTH)

    def batches(self, position: Position, rank: Rank = SINGLE) -> Iterator[tuple[Position, Tokens]]:
        return of_rank(self._order(position), rank)

    def _order(self, position: Position) -> Iterator[tuple[Position, Tokens]]:
        while True:
            position = position._replace(index=position.index + 1)
            tokens = torch.randint(4, VOCABULARY, (self.rows, LENGTH))
            yield position, Tokens(tokens, tokens.numel())

    def loss(self, batch: Tokens) -> Loss:
        states = self.model.states(batch.tokens[:, :-1])
        logits = states @ self.model.output_table.T
        targets = batch.tokens[:, 1:]
        total = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum")
        return Loss(total, {"loss": total.detach()})

    def validate(self) -> Validation:
        return Validation({}, [])


def measured(options: argparse.Namespace, strategy: str, again: bool) -> dict[str, Any]:
    """Memory in MiB and seconds of the second step of this process."""
    torch.manual_seed(1)
    processes = join()
    before = reset_peak()
    if before is None:
        raise SystemExit("this benchmark reads the memory of a process from Linux")
    sizes = {"layers": options.layers, "hidden_size": options.width, "heads": 4}
    settings = GptSettings.model_validate({**sizes, "max_length": LENGTH})
    task = RandomText(Gpt(settings, VOCABULARY), options.tokens)
    if again:
        checkpoint_layers(task.model)
    loop = LoopSettings.model_validate(
        {"strategy": strategy, "virtual_shards": processes.rank.count, "optimiser": "adamw"}
    )
    make = strategy_of(task, loop, CPU, "float32", seed=1, processes=processes)
    groups = groups_of(task.model, loop)
    parameters = [one for group in groups for one in group.parameters]
    optimiser = build_optimiser(groups, loop)
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    trained = make(task, parameters, CPU, scaler)
    batches = task.batches(Position(1), trained.rank)
    for step in (1, 2):
        between = reset_peak()
        began = time.perf_counter()
        _, batch = next(batches)
        trained.gradients(step, [batch], float(batch.weight))
        trained.clip(1.0)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        seconds = time.perf_counter() - began
    peak = peak_resident()
    assert peak is not None
    assert between is not None
    parts = [one for state in optimiser.state.values() for one in state.values()]
    held = sum((one.to_local() if is_sharded(one) else one).nbytes for one in parts)
    return {
        "parameters": sum(one.numel() for one in parameters),
        "between": (between - before) / MIB,
        "peak": (peak - before) / MIB,
        "optimiser": held / MIB,
        "seconds": seconds,
    }


def in_processes(count: int, *given: Any) -> list[dict[str, Any]]:
    """What :func:`measured` returns in new processes, by rank."""
    context = multiprocessing.get_context("spawn")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    pipes = [context.Pipe(duplex=False) for _ in range(count)]
    started = [
        context.Process(target=_answer, args=(pipe[1], rank, count, port, given))
        for rank, pipe in enumerate(pipes)
    ]
    for process in started:
        process.start()
    found = [pipe[0].recv() for pipe in pipes]
    for process in started:
        process.join()
    return found


def _answer(pipe: Connection, rank: int, count: int, port: int, given: tuple[Any, ...]) -> None:
    if count > 1:
        ranks = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count}
        os.environ |= {name: str(value) for name, value in ranks.items()}
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.set_num_threads(1)
    pipe.send(measured(*given))


def main() -> None:
    os.environ["MALLOC_MMAP_THRESHOLD_"] = "65536"  # for the processes that are started
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=["layers", "fsdp"])
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--layers", type=int)
    parser.add_argument("--width", type=int)
    parser.add_argument("--tokens", type=int)
    options = parser.parse_args()
    of_layers = options.what == "layers"
    defaults = (24, 128, 4096) if of_layers else (12, 512, 256)
    for name, value in zip(("layers", "width", "tokens"), defaults, strict=True):
        setattr(options, name, getattr(options, name) or value)
    if of_layers:
        cases = {"plain": (1, "ddp", False), "activation checkpointing": (1, "ddp", True)}
    else:
        cases = {"one process": (1, "ddp", False), "ddp": (options.processes, "ddp", False)}
        cases["fsdp"] = (options.processes, "fsdp", False)
    found = {
        name: in_processes(count, options, strategy, again)
        for name, (count, strategy, again) in cases.items()
    }
    rows = [
        [f"{name}, rank {rank}" if len(results) > 1 else name]
        + [f"{one[key]:,.1f}" for key in ("between", "optimiser", "peak", "seconds")]
        for name, results in found.items()
        for rank, one in enumerate(results)
    ]
    head = ["", "between steps, MiB", "optimiser's state, MiB", "peak of a step, MiB", "seconds"]
    print(table(head, rows))
    parameters = next(iter(found.values()))[0]["parameters"]
    print(f"{parameters:,} parameters, {options.layers} layers, {options.tokens:,} tokens per step")
    print(said(machine(threads=1)))


if __name__ == "__main__":
    main()
