"""The loop: any task, step by step, so that an interrupted run goes on exactly."""

import contextlib
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from heedful.basics.crowding import keep_threads, uncrowded
from heedful.basics.errors import UserError
from heedful.data.positions import Position
from heedful.runs.checkpoints import (
    Checkpoint,
    folder_of,
    load_model_tensors,
    model_tensors,
    remove_checkpoint,
    save_checkpoint,
    whole_checkpoints,
)
from heedful.runs.parts import PARTS, parts_of, require_parts
from heedful.runs.settings import LoopSettings
from heedful.training.interrupting import interruptible
from heedful.training.operations import operation_counter
from heedful.training.optimisers import (
    build_optimiser,
    learning_rate,
    load_optimiser_tensors,
    optimiser_tensors,
)
from heedful.training.pace import groups_of
from heedful.training.protocol import Task
from heedful.training.record import Record, made_folder
from heedful.training.report import Report
from heedful.training.shares import Learnt, Shares

Stop = Callable[[int, dict[str, float]], str | None]
"""Asked after each validation, the last one too, with its step and figures: why training should end
now, or None. After the last step the answer changes nothing."""

_TASK = "task."
"""Before the names of a task's own tensors in a checkpoint."""


class DivergedError(UserError):
    """A loss or gradient is not finite."""


@dataclass
class Progress:
    """Where a training stands; all of it is in the checkpoint."""

    step: int
    position: Position
    sums: dict[str, float] = field(default_factory=dict)
    """Named loss sums since the last record."""
    weights: dict[str, float] = field(default_factory=dict)
    """What they are sums over."""
    weight: int = 0
    """Tokens since the last record."""
    seconds: float = 0.0
    """Spent training since the last record."""
    total_weight: int = 0
    total_seconds: float = 0.0
    operations_per_weight: float = 0.0
    best: list[float] | None = None
    """The best validation's rank: see ``Loop.rank``."""
    best_step: int | None = None
    worse: int = 0
    """Validations since the best one."""
    stopped: bool = False
    given_up: bool = False
    """Whether it was ended from outside: see ``Stop``."""


class Loop:
    """Trains a task until its steps are done, it stops early, or it is interrupted.

    Args:
        task: what is learnt.
        settings: how.
        folder: the run's folder, made if it does not exist; checkpoints and the record go there.
        seed: of the data's order.
        device: where the model is.
        precision: kept in checkpoints; ``float16`` scales the loss.
        report: what people see.
        stop: may end the training after any validation.
        falls: whether a lower ``choose_by`` is better; if None, whether it is ``loss``.

    Raises:
        UserError: the folder cannot be made, or its last checkpoint does not fit the task.
    """

    def __init__(
        self,
        task: Task,
        settings: LoopSettings,
        folder: str | Path,
        *,
        seed: int,
        device: torch.device,
        precision: str,
        report: Report,
        stop: Stop | None = None,
        falls: bool | None = None,
    ) -> None:
        self.task, self.settings, self.folder = task, settings, made_folder(Path(folder))
        self.device, self.report, self.stop = device, report, stop
        self.precision = precision
        by = settings.choose_by
        self.sign = -1 if (by == "loss" if falls is None else falls) else 1
        self.checkpoints = self.folder / "checkpoints"
        self.groups = groups_of(task.model, settings)
        self.parameters = [p for group in self.groups for p in group.parameters]
        self.optimiser = build_optimiser(self.groups, settings)
        self.scaler = torch.amp.GradScaler(device.type, enabled=precision == "float16")
        possible = device.type == "cpu" and not self.scaler.is_enabled() and not settings.compile
        self.shares = Shares(task, self.parameters, possible=possible)
        self.progress = Progress(0, Position(seed, 0, 0))
        self.ranks: dict[int, list[float]] = {}
        """Checkpoint step → its validation's rank."""
        self.interrupted = False
        self._resume()
        self.record = Record(self.folder, self.progress.step, settings.tensorboard)

    def _resume(self) -> None:
        found = whole_checkpoints(self.checkpoints)
        for checkpoint in found:
            if checkpoint.state["validation"]:
                self.ranks[checkpoint.step] = self.rank(checkpoint.state["validation"])
        if found:
            try:
                self._restore(found[-1])
            except (KeyError, TypeError, ValueError, IndexError, RuntimeError) as error:
                raise UserError(
                    f"checkpoint {found[-1].path} does not fit this run ({error!r:.200}); delete "
                    "it to go on from the one before it"
                ) from error

    def _restore(self, checkpoint: Checkpoint) -> None:
        state = dict(checkpoint.state["progress"])
        # Until there were tasks with several weights, all sums had one.
        weights = state.get("weights", dict.fromkeys(state["sums"], state["weight"]))
        position = Position(*state["position"])
        self.progress = Progress(**{**state, "weights": weights, "position": position})
        # Patience may have been changed since.
        patience = self.settings.patience
        self.progress.stopped = patience is not None and self.progress.worse >= patience
        if self.progress.step > self.settings.max_steps:
            raise UserError(
                f"{self.folder} has reached step {self.progress.step}, more than "
                f"training.max_steps = {self.settings.max_steps}; raise it"
            )
        self._compare_threads(checkpoint.state.get("threads"))
        require_parts(self.task.model, checkpoint)
        load_model_tensors(self.task.model, checkpoint.weights(), checkpoint.path)
        tensors = checkpoint.training()
        load_optimiser_tensors(self.optimiser, tensors)
        self.task.load(
            {
                name.removeprefix(_TASK): tensor
                for name, tensor in tensors.items()
                if name.startswith(_TASK)
            }
        )
        if checkpoint.state["scaler"]:
            self.scaler.load_state_dict(checkpoint.state["scaler"])
        torch.set_rng_state(tensors["random.cpu"])
        if self.device.type == "cuda" and "random.cuda" in tensors:
            torch.cuda.set_rng_state(tensors["random.cuda"], self.device)

    def _compare_threads(self, before: int | None) -> None:
        """Say that another number of threads than before makes another run of this."""
        now = torch.get_num_threads() if self.device.type == "cpu" else None
        if before is not None and now is not None and before != now:
            self.report.say(
                f"resumed with {now} threads, the run had {before} until now: a different thread "
                "count gives a different, equally valid run (training.threads sets it)"
            )

    def run(self) -> bool:
        """Train to the end; False if interrupted, with a checkpoint written either way."""
        progress, settings = self.progress, self.settings
        validation: dict[str, float] = {}
        saved = progress.step
        batches = self.task.batches(progress.position)
        # Results depend on the number of threads in the last digits.
        threads = keep_threads() if self.settings.threads else contextlib.nullcontext()
        with interruptible(self._interrupt), threads:
            while not self.finished and not self.interrupted:
                self._step(batches)
                self.report.step(progress.step, self._seconds)
                last = self._at_end()
                if progress.step % settings.log_every == 0 or last:
                    self._log()
                validation = {}
                if progress.step % settings.validate_every == 0 or last:
                    validation = self._validate()
                    early = progress.stopped or progress.given_up
                    if early and progress.weight:  # between two logs
                        self._log()
                if validation or last or progress.step % settings.checkpoint_every == 0:
                    self._save(validation)
                    saved = progress.step
            if saved != progress.step:
                self._save(validation)
        return not self.interrupted

    @property
    def finished(self) -> bool:
        """Whether there is nothing left to train."""
        return self.progress.stopped or self.progress.given_up or self._at_end()

    @property
    def _seconds(self) -> float:
        """Spent on steps since the very beginning: neither on validating nor on saving."""
        return self.progress.total_seconds + self.progress.seconds

    def _at_end(self) -> bool:
        minutes = self.settings.max_minutes
        if minutes is not None and self._seconds >= 60 * minutes:
            return True
        return self.progress.step >= self.settings.max_steps

    def _step(self, batches: Iterator[tuple[Position, Any]]) -> None:
        progress = self.progress
        began = time.perf_counter()
        self.task.model.train()
        group = [next(batches) for _ in range(self.settings.accumulate)]
        weight = sum(batch.weight for _, batch in group)
        sums: dict[str, Tensor] = {}
        weights: Counter[str] = Counter()
        for _, batch in group:
            batch = batch.to(self.device)
            if not progress.operations_per_weight:
                progress.operations_per_weight = self._count_operations(batch)
            found = self._learn(batch, weight)
            whole = len(found) == 1
            for learnt, loss in found:
                for name, part in loss.parts.items():
                    sums[name] = sums.get(name, torch.zeros((), device=self.device)) + part
                    weights[name] += loss.weights.get(name, learnt.weight)
        # Shares of a batch give the same result beside any other program; so does what follows.
        with uncrowded(self.device) if whole else contextlib.nullcontext():
            self._update()
        progress.step += 1
        progress.position = group[-1][0]
        for name, total in sums.items():
            progress.sums[name] = progress.sums.get(name, 0.0) + total.item()
            progress.weights[name] = progress.weights.get(name, 0.0) + weights[name]
        self._require_finite(progress.sums)
        progress.weight += weight
        progress.total_weight += weight
        progress.seconds += time.perf_counter() - began

    def _update(self) -> None:
        """Change the weights by their gradients, which are clipped first and removed afterwards."""
        step = self.progress.step + 1
        rate = learning_rate(step, self.settings)
        for own, pace in zip(self.optimiser.param_groups, self.groups, strict=True):
            own["lr"] = rate * pace.scale
            if step < pace.from_step:
                for parameter in pace.parameters:
                    parameter.grad = None
        self.scaler.unscale_(self.optimiser)
        limit = math.inf if self.settings.clip_norm is None else self.settings.clip_norm
        norm = torch.nn.utils.clip_grad_norm_(self.parameters, limit)
        if not self.scaler.is_enabled():  # the scaler itself leaves out a step that is not finite
            self._require_finite({"gradient's norm": norm.item()})
        self.scaler.step(self.optimiser)
        self.scaler.update()
        self.optimiser.zero_grad(set_to_none=True)

    def _learn(self, batch: Any, weight: float) -> list[Learnt]:
        """Add a batch's gradients; what was learnt at once, with its losses."""
        shares = self.shares.of(batch)
        if len(shares) > 1:
            return self.shares.learn(shares, weight)
        with uncrowded(self.device):
            loss = self.task.loss(batch)
            torch.autograd.backward(self.scaler.scale(loss.total / weight))
        return [(batch, loss)]

    def _require_finite(self, values: dict[str, float]) -> None:
        for name, value in values.items():
            if not math.isfinite(value):
                saved = any(self.checkpoints.glob("step-*"))
                kept = (
                    f"the last checkpoint in {self.checkpoints} is from before that"
                    if saved
                    else "there is no checkpoint yet"
                )
                raise DivergedError(
                    f"the {name} is {value} after step {self.progress.step}: training stopped, "
                    f"{kept}; try a lower training.learning_rate, more training.warmup_steps, a "
                    "lower training.clip_norm, or training.precision = 'float32'"
                )

    def _count_operations(self, batch: Any) -> float:
        """Floating-point operations a token, forward and backward, counted on one batch.

        The random generator and what the task remembers are put back: counting changes nothing.
        """
        kept = {name: tensor.clone() for name, tensor in self.task.tensors().items()}
        devices = [self.device] if self.device.type == "cuda" else []
        eager = torch.compiler.set_stance("force_eager")
        with eager, torch.random.fork_rng(devices), operation_counter() as counter:
            total = self.task.loss(batch).total
            torch.autograd.backward(total)
        self.task.load(kept)
        self.optimiser.zero_grad(set_to_none=True)
        operations: float = counter.get_total_flops() / batch.weight
        return operations

    def _log(self) -> None:
        progress = self.progress
        figures: dict[str, float | int] = {
            name: total / max(progress.weights[name], 1) for name, total in progress.sums.items()
        }
        progress.total_seconds += progress.seconds
        figures |= {
            "learning_rate": learning_rate(progress.step, self.settings),
            "epoch": progress.position.epoch,
            "tokens": progress.total_weight,
            "tokens_per_second": progress.weight / max(progress.seconds, 1e-9),
            "operations": progress.operations_per_weight * progress.total_weight,
            "seconds": progress.total_seconds,
        }
        progress.sums, progress.weights, progress.weight, progress.seconds = {}, {}, 0, 0.0
        self.record.figures("train", progress.step, figures)
        self.report.logged(progress.step, progress.position.epoch, figures)

    def _validate(self) -> dict[str, float]:
        progress = self.progress
        began = time.perf_counter()
        figures, samples = self.task.validate()
        if not figures:
            return {}
        took = time.perf_counter() - began
        self.record.figures("validation", progress.step, {**figures, "seconds": took})
        self.record.show(progress.step, samples)
        self.report.validated(progress.step, figures, samples)
        rank = self.rank(figures)
        self.ranks[progress.step] = rank
        if progress.best is None or rank > progress.best:
            progress.best, progress.best_step, progress.worse = rank, progress.step, 0
        else:
            progress.worse += 1
            patience = self.settings.patience
            if patience is not None and progress.worse >= patience:
                progress.stopped = True
                self.report.say(
                    f"stopped: {self.settings.choose_by} is no better than at step "
                    f"{progress.best_step:,} since {patience} validations"
                )
        why = self.stop(progress.step, figures) if self.stop else None
        if why and not self.finished:
            progress.given_up = True
            self.report.say(f"stopped: {why}")
        return figures

    def rank(self, figures: dict[str, float]) -> list[float]:
        """What validations are compared by, greater is better: the chosen figure, then the loss."""
        chosen = self.settings.choose_by
        return [self.sign * figures[chosen], -figures.get("loss", 0.0)]

    def _save(self, validation: dict[str, float]) -> None:
        progress = self.progress
        training = optimiser_tensors(self.optimiser)
        training |= {_TASK + name: tensor for name, tensor in self.task.tensors().items()}
        training["random.cpu"] = torch.get_rng_state()
        if self.device.type == "cuda":
            training["random.cuda"] = torch.cuda.get_rng_state(self.device)
        state = {
            "step": progress.step,
            "best_step": progress.best_step,
            "validation": validation,
            "progress": asdict(progress) | {"position": list(progress.position)},
            "scaler": self.scaler.state_dict(),
            "precision": self.precision,
            "threads": torch.get_num_threads() if self.device.type == "cpu" else None,
            PARTS: parts_of(self.task.model),
        }
        folder = self.checkpoints / folder_of(progress.step)
        save_checkpoint(folder, model_tensors(self.task.model), training, state)
        self._prune()

    def _prune(self) -> None:
        """Keep the last and the best checkpoints, delete the others."""
        steps = sorted(
            int(path.name.removeprefix("step-")) for path in self.checkpoints.glob("step-*")
        )
        ranked = sorted((step for step in steps if step in self.ranks), key=self.ranks.__getitem__)
        by_value = ranked[::-1]
        kept = {*steps[-self.settings.keep_last :], *by_value[: self.settings.keep_best]}
        # Of equal ones the first is the best, which the run is used at.
        kept.add(self.progress.best_step or 0)
        for step in steps:
            if step not in kept:
                remove_checkpoint(self.checkpoints / folder_of(step))

    def _interrupt(self) -> None:
        self.interrupted = True
        self.report.say("interrupted: saving after this step (once more ends at once)")
