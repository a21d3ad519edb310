"""The training loop: one for all losses, on accelerate.

Samples and noise do not depend on the number of processes, which split a batch by its rows.
"""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pnpcm.errors import ArgumentError, MissingExtraError, PnPCMError
from pnpcm.places import resolve
from pnpcm.training.data import Samples, generator_of, loader
from pnpcm.training.recipe import PRECISIONS, Recipe
from pnpcm.training.report import Reporter
from pnpcm.training.state import TrainState, learning_rate
from pnpcm.training.step import Batch, Nets

MAX_SKIPPED = 20
"""Number of consecutive steps without a finite gradient after which a run stops."""


class DivergedError(PnPCMError, ArithmeticError):
    """Training has no finite gradients any more."""


def train(recipe: Recipe, folder: Path, *, max_seconds: float | None = None) -> Path:
    """Train ``recipe`` (paths from ``folder``), for at most ``max_seconds``; returns its folder.

    If the run's folder holds a checkpoint of the same recipe, training continues from it.
    """
    out = resolve(recipe.out, folder)
    accelerator = _accelerator(recipe, out)
    if recipe.batch % (recipe.accumulate * accelerator.num_processes):
        raise ArgumentError(
            f"batch {recipe.batch} must be a multiple of accumulate × processes = "
            f"{recipe.accumulate} × {accelerator.num_processes}"
        )
    state = TrainState(recipe, folder)
    state.to(accelerator.device)
    if accelerator.is_main_process:
        out.mkdir(parents=True, exist_ok=True)
    checkpoint = out / "state.pt"
    if checkpoint.exists():
        state.load(checkpoint)
    report = Reporter(recipe, folder, out, state, accelerator)
    samples = Samples(
        [(s.open(folder), s.repeat) for s in recipe.data.sources],
        seed=recipe.seed,
        crop=recipe.data.crop,
        flip=recipe.data.flip,
    )
    micro = recipe.batch // recipe.accumulate
    batches = loader(
        samples,
        start=state.step * recipe.batch,
        stop=recipe.steps * recipe.batch,
        batch=micro,
        workers=recipe.data.workers,
    )
    student, optimizer, batches = accelerator.prepare(state.student, state.optimizer, batches)
    p = recipe.prior
    nets = Nets(student, state.target, state.teacher, p.sigma_data, p.sigma_min, p.sigma_max)
    last_save, started, before = time.monotonic(), time.monotonic(), state.seconds
    in_a_row, micro_losses = 0, []
    with _stop_signal() as stopped, report:
        for x, numbers in batches:
            generators = [generator_of(recipe.seed, "noise", int(n)) for n in numbers]
            batch = Batch(x, generators, state.step, recipe.steps)
            _seed_dropout(recipe, state.step, accelerator.process_index)
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(recipe.optimizer, state.step, recipe.steps)
            with accelerator.accumulate(student):
                with accelerator.autocast():  # also LPIPS, which is half of the time
                    loss = recipe.objective(nets, batch).mean()
                accelerator.backward(loss)
                micro_losses.append(accelerator.reduce(loss.detach(), "mean"))
                if not accelerator.sync_gradients:
                    continue
                clip = recipe.optimizer.clip or math.inf
                norm = _norm(accelerator.clip_grad_norm_(student.parameters(), clip))
                finite = math.isfinite(norm)
                if finite:
                    optimizer.step()
                optimizer.zero_grad()
            mean_loss = float(torch.stack(micro_losses).mean())
            micro_losses.clear()
            in_a_row = 0 if finite else in_a_row + 1
            state.skipped += not finite
            state.step += 1
            state.seconds = before + time.monotonic() - started
            if finite:
                state.follow()
            report.step(mean_loss, norm, optimizer.param_groups[0]["lr"])
            if in_a_row >= MAX_SKIPPED:
                raise DivergedError(
                    f"{in_a_row} steps in a row had no finite gradient (step {state.step}); "
                    f"lower optimizer.lr or set optimizer.clip and continue from {checkpoint}"
                )
            late = max_seconds is not None and time.monotonic() - started > max_seconds
            if _agree(accelerator, late or stopped()):
                break
            minutes = (time.monotonic() - last_save) / 60
            if _agree(accelerator, minutes > recipe.report.checkpoint_minutes):
                report.checkpoint(checkpoint)
                last_save = time.monotonic()
        report.checkpoint(checkpoint)
        report.finish()
    accelerator.wait_for_everyone()  # keeps connections open until the main process has written
    accelerator.end_training()
    return out


def _accelerator(recipe: Recipe, out: Path) -> Any:
    try:
        from accelerate import Accelerator
        from accelerate.utils import DataLoaderConfiguration
    except ImportError as error:
        raise MissingExtraError("training needs accelerate; pip install pnpcm[train]") from error
    return Accelerator(
        cpu=not torch.accelerator.is_available(),  # else several CPU processes are not detected
        gradient_accumulation_steps=recipe.accumulate,
        mixed_precision=PRECISIONS[recipe.precision],
        log_with=list(recipe.trackers) or None,
        project_dir=out,
        dataloader_config=DataLoaderConfiguration(split_batches=True, use_seedable_sampler=False),
        step_scheduler_with_optimizer=False,
    )


def _seed_dropout(recipe: Recipe, step: int, process: int) -> None:
    """Seed the global state, which dropout uses, by step and process."""
    if recipe.network.dropout > 0:
        torch.manual_seed(generator_of(recipe.seed, f"dropout/{process}", step).initial_seed())


def _norm(value: Tensor | float | None) -> float:
    return float(value) if value is not None else math.nan


def _agree(accelerator: Any, flag: bool) -> bool:
    """Whether ``flag`` is true on any process, so that all leave the loop together."""
    if accelerator.num_processes == 1:
        return flag
    votes = accelerator.reduce(torch.tensor(float(flag), device=accelerator.device), "sum")
    return float(votes) > 0


@contextmanager
def _stop_signal() -> Iterator[Any]:
    """Ctrl-C and SIGTERM end the run after the step, with a checkpoint."""
    seen: list[int] = []
    old = {}
    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            old[number] = signal.signal(number, lambda s, _: seen.append(s))
    except ValueError:  # not the main thread: the caller handles signals
        pass
    try:
        yield lambda: bool(seen)
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
