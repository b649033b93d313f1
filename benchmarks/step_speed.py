"""Speed of a training step: which part of it is compiled, and how the optimiser updates weights.

    python benchmarks/step_speed.py [--layers 4] [--hidden-size 128] [--steps 20] [--rounds 3]

A GPT reads random windows. Each form of a step computes the same loss, gradients and update; the
forms take turns, and the fastest round of each counts. ``compile s`` is the time of the first step.

- step: eager, as by default; the model's ``states`` compiled (``training.compile``); the model and
  the loss compiled together.
- optimiser: AdamW with PyTorch's fused update, as heedful uses it; with lists of tensors
  (``foreach``); one tensor after the other. ``equal bits`` compares the weights with those of the
  fused update after 10 steps.
"""

import argparse
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from heedful.data.streams import WindowBatch
from heedful.models.gpt import Gpt, GptSettings
from heedful.tasks.language_model.training import LanguageTask
from heedful.training.building import compile_method


def main() -> None:
    """Measure both tables and print them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, value in (("layers", 4), ("hidden-size", 128), ("vocabulary", 4000)):
        parser.add_argument(f"--{name}", type=int, default=value)
    for name, value in (("rows", 16), ("context", 128), ("steps", 20), ("rounds", 3)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print(f"PyTorch {torch.__version__}, {options.threads} thread(s)\n")
    print(f"{'step':<28}{'tokens/s':>12}{'ratio':>8}{'compile s':>11}")
    forms = {"eager": eager, "states compiled": states_compiled, "loss compiled": loss_compiled}
    made = {name: form(options) for name, form in forms.items()}
    first = {name: seconds(step) for name, step in made.items()}
    best = fastest(made, options.steps, options.rounds)
    tokens = options.rows * options.context
    for name, took in best.items():
        ratio = best["eager"] / took
        print(f"{name:<28}{tokens / took:>12,.0f}{ratio:>8.2f}{first[name]:>11.1f}")
    print(f"\n{'optimiser':<28}{'ms/update':>12}{'ratio':>8}{'equal bits':>11}")
    how: dict[str, dict[str, bool]] = {
        "fused": {"fused": True},
        "foreach": {"foreach": True},
        "one by one": {"foreach": False},
    }
    updates = {name: update_of(options, given) for name, given in how.items()}
    weights = {name: after(options, given) for name, given in how.items()}
    best = fastest(updates, options.steps, options.rounds)
    for name, took in best.items():
        same = all(map(torch.equal, weights[name], weights["fused"]))
        print(f"{name:<28}{1000 * took:>12.2f}{best['fused'] / took:>8.2f}{same!s:>11}")


def model_of(options: Any) -> Gpt:
    """The same random weights each time."""
    torch.manual_seed(1)
    settings = GptSettings.model_validate(
        {
            "layers": options.layers,
            "hidden_size": options.hidden_size,
            "heads": max(1, options.hidden_size // 32),
            "max_length": options.context,
        }
    )
    return Gpt(settings, options.vocabulary)


def task_of(model: Gpt, options: Any) -> tuple[LanguageTask, WindowBatch]:
    """The training task of a model, and a batch."""
    nothing: Any = None  # neither data nor samples are needed
    task = LanguageTask(model, nothing, [], nothing, device=torch.device("cpu"))
    draw = torch.Generator().manual_seed(2)
    shape = (options.rows, options.context + 1)
    tokens = torch.randint(5, options.vocabulary, shape, generator=draw)
    batch = WindowBatch(tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous(), tokens[1:].numel())
    return task, WindowBatch(batch.tokens, batch.targets, batch.targets.numel())


def eager(options: Any) -> Callable[[], None]:
    """A step without compiling."""
    task, batch = task_of(model_of(options), options)
    return step_of(task.model, lambda: task.loss(batch).total / batch.weight)


def states_compiled(options: Any) -> Callable[[], None]:
    """The model's method compiled, as ``training.compile`` does."""
    task, batch = task_of(model_of(options), options)
    compile_method(task.model, "states")
    return step_of(task.model, lambda: task.loss(batch).total / batch.weight)


def loss_compiled(options: Any) -> Callable[[], None]:
    """Model and loss compiled in one call; the backward pass is compiled with them."""
    task, batch = task_of(model_of(options), options)

    def loss(tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return task.loss(WindowBatch(tokens, targets, batch.weight)).total

    compiled = torch.compile(loss, dynamic=True)
    return step_of(task.model, lambda: compiled(batch.tokens, batch.targets) / batch.weight)


def step_of(model: nn.Module, loss: Callable[[], torch.Tensor]) -> Callable[[], None]:
    """A step: loss, gradients, clipping and update."""
    optimiser = torch.optim.AdamW(model.parameters(), fused=True)
    model.train()

    def step() -> None:
        loss().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad()

    return step


def update_of(options: Any, how: dict[str, bool]) -> Callable[[], None]:
    """An update alone, with constant gradients."""
    model = model_of(options)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimiser = torch.optim.AdamW(model.parameters(), **how)
    return lambda: (optimiser.step(), None)[1]


def after(options: Any, how: dict[str, bool]) -> list[torch.Tensor]:
    """The weights after 10 updates with random gradients."""
    model = model_of(options)
    optimiser = torch.optim.AdamW(model.parameters(), **how)
    draw = torch.Generator().manual_seed(3)
    for _ in range(10):
        for parameter in model.parameters():
            parameter.grad = torch.randn(parameter.shape, generator=draw)
        optimiser.step()
    return list(model.parameters())


def seconds(call: Callable[[], None]) -> float:
    """The time of a call."""
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def fastest(calls: dict[str, Callable[[], None]], steps: int, rounds: int) -> dict[str, float]:
    """The seconds of each call in its fastest round; the calls take turns."""
    best = dict.fromkeys(calls, float("inf"))
    for _ in range(rounds):
        for name, call in calls.items():
            took = seconds(lambda call=call: [call() for _ in range(steps)] and None)
            best[name] = min(best[name], took / steps)
    return best


if __name__ == "__main__":
    main()
