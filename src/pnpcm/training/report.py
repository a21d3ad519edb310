"""Outputs of a run: log, progress, denoising curve, sample grid, prior file and model card."""

from __future__ import annotations

import json
import platform
import time
from pathlib import Path
from typing import Any

import torch

from pnpcm import __version__
from pnpcm.io.files import write_text
from pnpcm.metrics.quality import denoising_psnr
from pnpcm.priors.checkpoint import save_prior
from pnpcm.priors.controlled import ControlledModel, save_control
from pnpcm.rng import generators
from pnpcm.training.data import Samples, domain_of
from pnpcm.training.pictures import save_curve, save_hinted, save_samples
from pnpcm.training.recipe import Recipe
from pnpcm.training.state import TrainState

FALL = 3.0
"""Decrease of PSNR in dB between two evaluations that indicates a collapse."""
BEFORE_FALL = "-before-fall"
"""Suffix of the file with the weights before a collapse; absent without one."""


class Reporter:
    """Writes to the run's folder, only on the main process."""

    def __init__(
        self, recipe: Recipe, folder: Path, out: Path, state: TrainState, accelerator: Any
    ) -> None:
        self.recipe, self.out, self.state = recipe, out, state
        self.accelerator, self.main = accelerator, bool(accelerator.is_main_process)
        self._losses: list[float] = []
        self._since = (time.monotonic(), state.step)
        self._bar: Any = None
        self._scores: dict[str, float] = {}
        self._fell = False
        self._validation, self._beside = None, {}
        if self.main and recipe.report.validation:
            sources = [(s.open(folder), s.repeat) for s in recipe.report.validation]
            samples = Samples(sources, seed=0, crop=recipe.data.crop, flip="none")
            count = min(recipe.report.images, len(samples))
            images = torch.stack([samples[n][0] for n in range(count)])
            self._validation = images.to(accelerator.device)
            if recipe.objective.kind == "control":
                hint = recipe.loss.hint(self._validation, generators(range(count)))
                self._beside = {"hint": hint}
        controls = recipe.objective.kind == "control"
        domain = domain_of(recipe.data.sources, folder) if self.main and not controls else None
        self._domain = {} if domain is None else {"domain": domain.to_dict()}
        if recipe.trackers:
            accelerator.init_trackers(recipe.name)
        if self.main:
            write_text(out / "recipe.json", json.dumps(recipe.to_dict(), indent=2) + "\n")
            self._cut_log()

    def __enter__(self) -> Reporter:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        console = Console()
        self._terminal = console.is_terminal
        if self.main and self._terminal:
            self._bar = Progress(
                TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[note]}"),
                TimeRemainingColumn(), console=console,
            )  # fmt: skip
            self._task = self._bar.add_task(
                self.recipe.name, total=self.recipe.steps, completed=self.state.step, note=""
            )
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def step(self, loss: float, norm: float, lr: float) -> None:
        """Log an optimiser step."""
        if not self.main:
            return
        step, settings = self.state.step, self.recipe.report
        self._losses.append(loss)
        if step % settings.log_every == 0 or step == self.recipe.steps:
            seconds, since = time.monotonic() - self._since[0], step - self._since[1]
            speed = since * self.recipe.batch / max(seconds, 1e-9)
            mean = sum(self._losses) / len(self._losses)
            line = {
                "step": step, "samples": step * self.recipe.batch, "loss": mean, "lr": lr,
                "gradient_norm": norm, "skipped": self.state.skipped,
                "minutes": self.state.seconds / 60, "samples_per_second": speed,
            }  # fmt: skip
            self._write(line)
            self._losses.clear()
            self._since = (time.monotonic(), step)
            self._show(f"loss {mean:.4g} · {speed:.1f} samples/s")
        if step % settings.evaluate_every == 0 and step < self.recipe.steps:
            self.evaluate()

    def evaluate(self) -> None:
        """Denoising curve and sample grid of the averaged weights."""
        if not self.main:
            return
        prior, settings = self.state.averaged(), self.recipe.report
        if self._validation is not None:
            before, self._scores = (
                self._scores,
                {
                    f"{sigma:g}": denoising_psnr(prior, self._validation, sigma, **self._beside)
                    for sigma in settings.sigmas
                },
            )
            self._write({"step": self.state.step, "minutes": self.state.seconds / 60,
                         "psnr": self._scores})  # fmt: skip
            best = ", ".join(f"{s}: {v:.2f}" for s, v in self._scores.items())
            self._show(f"PSNR by sigma {best}")
            self._watch(before)
            save_curve(self.out / "log.jsonl", self.out / "curve.png")
        if isinstance(prior, ControlledModel):
            if self._validation is not None:
                save_hinted(prior, self._validation, self._beside["hint"], self.out)
        elif settings.sample_size is not None:
            save_samples(prior, settings.sample_size, settings.sample_steps, self.out)

    def _watch(self, before: dict[str, float]) -> None:
        """Keep the weights before a collapse, and print a message when one is found.

        Consistency training can collapse within a stage.
        """
        falls = {s: before[s] - v for s, v in self._scores.items() if s in before}
        worst = max(falls, key=lambda s: falls[s], default="")
        if worst and falls[worst] > FALL:
            self._fell = True
            self._show(
                f"PSNR at sigma {worst} fell by {falls[worst]:.1f} dB: the run may have collapsed; "
                f"*{BEFORE_FALL}.safetensors holds the weights before it"
            )
        elif not self._fell:
            self._save(0, BEFORE_FALL)

    def checkpoint(self, path: Path) -> None:
        """State, and the averaged prior as a file that :func:`pnpcm.load_prior` reads."""
        if not self.main:
            return
        self.state.save(path)
        for which, rate in enumerate(self.recipe.ema):
            self._save(which, "" if which == 0 else f"-ema-{rate:g}")

    def _save(self, which: int, ending: str) -> None:
        """Write averaged weights to the file ``prior`` or ``control`` with ``ending``."""
        prior = self.state.averaged(which)
        if isinstance(prior, ControlledModel):
            path = self.out / f"control{ending}.safetensors"
            save_control(prior, path, info=self.info(), dtype=torch.float16)
        else:
            path = self.out / f"prior{ending}.safetensors"
            save_prior(prior, path, info=self.info(), dtype=torch.float16)

    def finish(self) -> None:
        """Write the last evaluation and the model card."""
        if self.main:
            self.evaluate()
            self.checkpoint(self.out / "state.pt")
            write_text(self.out / "card.md", model_card(self.info(), self.recipe))
            if not self._fell:
                for path in self.out.glob(f"*{BEFORE_FALL}.safetensors"):
                    path.unlink()

    def info(self) -> dict[str, Any]:
        """The metadata of the prior's file."""
        stage = {
            "method": self.recipe.method,
            "steps": self.state.step,
            "samples": self.state.step * self.recipe.batch,
            "minutes": round(self.state.seconds / 60, 1),
            "processes": self.accelerator.num_processes,
            "machine": f"{platform.machine()}, {torch.get_num_threads()} threads, "
            + ("GPU" if torch.cuda.is_available() else "CPU"),
            "pnpcm": __version__,
            "psnr_by_sigma": {k: round(v, 2) for k, v in self._scores.items()},
        }
        about: dict[str, Any] = self.state.student.info.get("control", {})
        return (
            self.recipe.card
            | about
            | self._domain
            | {"name": self.recipe.name, "training": [*self.state.history, stage]}
        )

    def _write(self, line: dict[str, Any]) -> None:
        with (self.out / "log.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        if self.recipe.trackers:
            flat = line | line.get("psnr", {})
            numbers = {k: v for k, v in flat.items() if isinstance(v, int | float)}
            self.accelerator.log(numbers, step=self.state.step)

    def _cut_log(self) -> None:
        """Remove log entries after the checkpoint, whose steps are repeated."""
        log = self.out / "log.jsonl"
        if log.exists():
            lines = log.read_text(encoding="utf-8").splitlines()
            kept = [line for line in lines if _step_of(line) <= self.state.step]
            write_text(log, "".join(line + "\n" for line in kept))

    def _show(self, note: str) -> None:
        if self._bar is not None:
            self._bar.update(self._task, completed=self.state.step, note=note)
        elif not self._terminal:
            print(
                f"{self.recipe.name} step {self.state.step}/{self.recipe.steps}: {note}", flush=True
            )


def _step_of(line: str) -> float:
    try:
        return float(json.loads(line)["step"])
    except (ValueError, KeyError):  # the last line of a killed run may be incomplete
        return float("inf")


def model_card(info: dict[str, Any], recipe: Recipe) -> str:
    """The model card of a run as Markdown, from the metadata of its prior."""
    lines = [f"# {info['name']}", ""]
    for key, value in info.items():
        if key in ("name", "training", "domain"):
            continue
        text = ", ".join(str(v) for v in value) if isinstance(value, list | tuple) else str(value)
        lines.append(f"- **{key.replace('_', ' ')}**: {text}")
    lines += [
        "",
        "## Training",
        "",
        "| method | steps | samples | minutes | machine |",
        "|---|---|---|---|---|",
    ]
    for stage in info["training"]:
        cells = (stage.get(k, "–") for k in ("method", "steps", "samples", "minutes", "machine"))
        lines.append("| " + " | ".join(str(cell) for cell in cells) + " |")
    scores = info["training"][-1].get("psnr_by_sigma") or {}
    if scores:
        lines += ["", "## Denoising", "", "Validation crops, averaged weights.", ""]
        lines += ["| σ | " + " | ".join(scores) + " |", "|---" * (len(scores) + 1) + "|"]
        lines.append("| PSNR (dB) | " + " | ".join(f"{v:.2f}" for v in scores.values()) + " |")
    lines += ["", "## Recipe", "", f"`pnpcm train {recipe.method}`, network {recipe.network}", ""]
    return "\n".join(lines)
