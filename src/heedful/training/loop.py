"""The training loop. It trains any task, and resumes an interrupted run exactly."""

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from heedful.basics.errors import UserError
from heedful.basics.thread_contention import keep_threads, without_contention
from heedful.data.positions import Position
from heedful.layers.max_norm import constrained_modules
from heedful.runs.checkpoints import Checkpoint, whole_checkpoints
from heedful.runs.settings import LoopSettings
from heedful.training.checkpointing import prune, restore, save
from heedful.training.interrupting import interruptible
from heedful.training.optimisers import build_optimiser, learning_rate
from heedful.training.parameter_groups import groups_of
from heedful.training.processes import join
from heedful.training.profiling import Profiler, phase
from heedful.training.progress import Progress
from heedful.training.protocol import Task
from heedful.training.record import Record, create_folder
from heedful.training.report import Report
from heedful.training.running_sums import NotFinite, RunningSums
from heedful.training.strategies import BatchLoss, MakeStrategy
from heedful.training.strategy_choice import strategy_of
from heedful.training.utilisation import Utilisation

Stop = Callable[[int, dict[str, float]], str | None]
"""Called after each validation, the last one included, with its step and figures. Returns the
reason to end training now, or None. After the last step the reason is ignored."""


class DivergedError(UserError):
    """A loss or gradient is not finite."""


class Loop:
    """Trains a task until all steps are done, early stopping ends it, or it is interrupted.

    Args:
        task: the task to train.
        settings: the training settings.
        folder: the run's folder for checkpoints and metrics; created if it does not exist.
        seed: determines the order of the data.
        device: the device of the model.
        precision: stored in checkpoints; ``float16`` scales the loss.
        report: prints progress and messages.
        stop: may end the training after any validation.
        falls: whether a lower ``choose_by`` is better; if None, only for ``loss``.
        strategy: computes the steps; if None, that of the settings and of the processes that train
            together (`heedful.training.strategy_choice`).
        profile: number of steps to profile.

    Raises:
        UserError: the folder cannot be created, or its last checkpoint does not fit the task.
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
        strategy: MakeStrategy | None = None,
        profile: int = 0,
    ) -> None:
        self.task, self.settings, self.folder = task, settings, create_folder(Path(folder))
        self.device, self.report, self.stop = device, report, stop
        self.precision = precision
        by = settings.choose_by
        self.sign = -1 if (by == "loss" if falls is None else falls) else 1
        self.checkpoints = self.folder / "checkpoints"
        make = strategy or strategy_of(
            task, settings, device, precision, seed=seed, processes=join()
        )
        self.groups = groups_of(task.model, settings)
        self.parameters = [p for group in self.groups for p in group.parameters]
        self.optimiser = build_optimiser(self.groups, settings)
        self.constrained = constrained_modules(task.model)
        self.scaler = torch.amp.GradScaler(device.type, enabled=precision == "float16")
        self.strategy = make(task, self.parameters, device, self.scaler)
        self.writes = self.strategy.rank.index == 0
        """Whether this process writes the run's files and prints messages."""
        self.progress = Progress(0, Position(seed, 0, 0))
        self.ranks: dict[int, list[float]] = {}
        """Checkpoint step → its validation's rank."""
        self.interrupted = False
        self._resume()
        self._out_of_time = False
        self._check_time()
        self._sums = RunningSums(device, self.progress.sums, self.progress.step)
        self.utilisation = Utilisation(
            device, precision, processes=self.strategy.rank.count, notify=report.message
        )
        self.profiler = Profiler(self.folder, profile if self.writes else 0, device, report.message)
        if self.writes:
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
                    "it to resume from the one before it"
                ) from error

    def _restore(self, checkpoint: Checkpoint) -> None:
        self.progress = Progress.from_state(checkpoint.state["progress"], self.settings.patience)
        if self.progress.step > self.settings.max_steps:
            raise UserError(
                f"{self.folder} has reached step {self.progress.step}, more than "
                f"training.max_steps = {self.settings.max_steps}; increase training.max_steps"
            )
        self._compare_threads(checkpoint.state.get("threads"))
        restore(checkpoint, self.task, self.optimiser, self.scaler, self.device)
        if self.progress.best_step is not None and self.progress.best_step not in self.ranks:
            self._replace_best()

    def _replace_best(self) -> None:
        """Let the best of the checkpoints that are there be the best one, which is lost."""
        progress, lost = self.progress, self.progress.best_step
        steps = sorted(self.ranks)  # of equal ones, the first
        progress.best_step = max(steps, key=self.ranks.__getitem__, default=None)
        progress.best = None if progress.best_step is None else self.ranks[progress.best_step]
        now = "none" if progress.best_step is None else f"step {progress.best_step:,}"
        self._say(f"the best checkpoint, step {lost:,}, is missing or damaged; now it is {now}")

    def _compare_threads(self, before: int | None) -> None:
        """Print a message if the number of threads has changed, because results then differ."""
        if self.settings.virtual_shards > 1 and self.settings.exact_reduction:
            return
        now = torch.get_num_threads() if self.device.type == "cpu" else None
        if before is not None and now is not None and before != now:
            self._say(
                f"resumed with {now} threads instead of {before}: a different thread "
                "count gives a different, equally valid run (training.threads sets it)"
            )

    def run(self) -> bool:
        """Train to the end; returns False if interrupted. A checkpoint is written in both cases."""
        progress, settings = self.progress, self.settings
        validation: dict[str, float] = {}
        saved = progress.step
        batches = self.task.batches(progress.position, self.strategy.rank)
        # The number of threads changes the last digits of results.
        threads = keep_threads() if self.settings.threads else contextlib.nullcontext()
        with interruptible(self._interrupt), threads, self.profiler:
            while not self.finished and not self._is_interrupted():
                with self.profiler.step():
                    self._step(batches)
                if self.writes:
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
                self._save(validation, extra=True)
        return not self.interrupted

    def _is_interrupted(self) -> bool:
        self.interrupted = self.strategy.any(self.interrupted)
        return self.interrupted

    @property
    def finished(self) -> bool:
        """Whether training has ended."""
        return self.progress.stopped or self.progress.given_up or self._at_end()

    @property
    def _seconds(self) -> float:
        """Training time since the start of the run, without validation and checkpoints."""
        return self.progress.total_seconds + self.progress.seconds

    def _at_end(self) -> bool:
        return self._out_of_time or self.progress.step >= self.settings.max_steps

    def _check_time(self) -> None:
        minutes = self.settings.max_minutes
        if minutes is not None:
            self._out_of_time = self.strategy.any(self._seconds >= 60 * minutes)

    def _step(self, batches: Iterator[tuple[Position, Any]]) -> None:
        progress = self.progress
        began = time.perf_counter()
        self.task.model.train()
        count = self.settings.accumulation_steps * self.strategy.rank.each
        with phase("data"):
            group = [next(batches) for _ in range(count)]
        weight = self.strategy.total(sum(batch.weight for _, batch in group))
        if not progress.operations_per_weight:
            first = group[0][1].to(self.device)
            progress.operations_per_weight = self.strategy.operations(first) / first.weight
            self.optimiser.zero_grad(set_to_none=True)
        with phase("gradients"):
            step = progress.step + 1
            results = self.strategy.gradients(step, [batch for _, batch in group], weight)
        losses: dict[str, Tensor] = {}
        for result in results:
            self._add(losses, result)
        # The parts of a batch give identical results under any load; so does the optimiser step.
        whole = len(results) == len(group)
        alone = without_contention(self.device) if whole else contextlib.nullcontext()
        with phase("optimiser"), alone:
            norm = self._update()
        progress.step += 1
        progress.position = group[-1][0]
        self._sums.add(losses, norm)
        progress.weight += weight
        progress.total_weight += weight
        progress.seconds += time.perf_counter() - began
        self._check_time()

    def _add(self, losses: dict[str, Tensor], result: BatchLoss) -> None:
        """Add a loss to the sums of the step, and its weights to the progress."""
        zero, weights = torch.zeros((), device=self.device), self.progress.weights
        for name, part in result.loss.parts.items():
            losses[name] = losses.get(name, zero) + part
            over = result.loss.weights.get(name, result.weight)
            weights[name] = weights.get(name, 0.0) + over

    def _update(self) -> Tensor | None:
        """Clip the gradients, take an optimiser step and clear the gradients.

        Returns:
            The norm of the gradients; None if the scaler skips steps that are not finite.
        """
        step = self.progress.step + 1
        rate = learning_rate(step, self.settings)
        for own, group in zip(self.optimiser.param_groups, self.groups, strict=True):
            own["lr"] = rate * group.scale
            if step < group.from_step:
                for parameter in group.parameters:
                    parameter.grad = None
        self.scaler.unscale_(self.optimiser)
        limit = math.inf if self.settings.clip_norm is None else self.settings.clip_norm
        norm = self.strategy.clip(limit)
        self.scaler.step(self.optimiser)
        for module in self.constrained:
            module.constrain()
        self.scaler.update()
        self.optimiser.zero_grad(set_to_none=True)
        return None if self.scaler.is_enabled() else norm

    def _read_sums(self) -> None:
        """Read the sums from the device.

        Raises:
            DivergedError: a loss or gradient since the last call was not finite.
        """
        progress = self.progress
        found = self._sums.first_not_finite()
        if self.strategy.any(found is not None):
            what = found or NotFinite("loss or gradient of another process", progress.step)
            saved = any(self.checkpoints.glob("step-*"))
            kept = (
                f"the last checkpoint in {self.checkpoints} is from before that"
                if saved
                else "there is no checkpoint yet"
            )
            raise DivergedError(
                f"the {what.name} is not finite after step {what.step}: training stopped, "
                f"{kept}; try a lower training.learning_rate, more training.warmup_steps, a "
                "lower training.clip_norm, or training.precision = 'float32'"
            )
        progress.sums = self.strategy.reduce(self._sums.read())
        progress.weights = self.strategy.reduce(progress.weights)
        if not self.writes:  # the process that writes continues from the sums of all processes
            progress.sums, progress.weights = {}, {}
        self._sums.begin(progress.sums, progress.step)

    def _log(self) -> None:
        progress = self.progress
        began = time.perf_counter()
        self._read_sums()
        progress.seconds += time.perf_counter() - began  # wait for the device's remaining work
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
        operations = progress.operations_per_weight * progress.weight
        seconds = progress.seconds
        progress.sums, progress.weights, progress.weight, progress.seconds = {}, {}, 0, 0.0
        self._sums.begin({}, progress.step)
        if self.writes:
            figures |= self.utilisation.figures(operations, seconds)
            self.record.figures("train", progress.step, figures)
            self.report.logged(progress.step, progress.position.epoch, figures)

    def _validate(self) -> dict[str, float]:
        progress = self.progress
        self._read_sums()
        began = time.perf_counter()
        with self.strategy.whole_model():
            figures, samples = self.task.validate()
        figures = self.strategy.agreed(figures)
        if not figures:
            return {}
        took = time.perf_counter() - began
        if self.writes:
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
                self._say(
                    f"stopped: {self.settings.choose_by} has not improved for {patience} "
                    f"validations; the best was at step {progress.best_step:,}"
                )
        why = self.stop(progress.step, figures) if self.stop and self.writes else None
        why = self.strategy.agreed(why)
        if why and not self.finished:
            progress.given_up = True
            self._say(f"stopped: {why}")
        return figures

    def _say(self, text: str) -> None:
        """Print a message in the process that writes."""
        if self.writes:
            self.report.message(text)

    def rank(self, figures: dict[str, float]) -> list[float]:
        """The sort key of validations, greater is better: ``choose_by``, then the loss."""
        chosen = self.settings.choose_by
        return [self.sign * figures[chosen], -figures.get("loss", 0.0)]

    def _save(self, validation: dict[str, float], *, extra: bool = False) -> None:
        self._read_sums()
        tensors = self.strategy.checkpoint(self.optimiser)
        parts = self.strategy.write_parts(self.optimiser, self.checkpoints, self.progress.step)
        if not self.writes:
            return
        save(
            self.checkpoints,
            self.task,
            tensors,
            self.progress,
            validation,
            scaler=self.scaler,
            device=self.device,
            precision=self.precision,
            parts=parts,
            extra=extra,
        )
        # Of equal checkpoints, the first counts as the best.
        progress = self.progress
        prune(self.checkpoints, self.settings, self.ranks, progress.best_step, progress.step)

    def _interrupt(self) -> None:
        self.interrupted = True
        self._say("interrupted: saving after this step (interrupt again to quit at once)")
