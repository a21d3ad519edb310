"""State of a run: networks, optimiser, averages and the step number.

All random numbers are functions of (seed, step), so that no random state is saved.
"""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pnpcm.errors import ArgumentError, CheckpointError
from pnpcm.io.files import save_tensors
from pnpcm.io.reading import reading
from pnpcm.networks import UNet, UNetConfig
from pnpcm.networks.control import ControlNet
from pnpcm.networks.grow import check_growth, grow
from pnpcm.places import existing
from pnpcm.priors import ConsistencyModel, DiffusionModel
from pnpcm.priors.base import C_NOISE
from pnpcm.priors.checkpoint import NetPrior, load_openai, load_own
from pnpcm.priors.controlled import ControlledModel, read_control
from pnpcm.training.cosign_loss import CosignLoss
from pnpcm.training.muon import Muon
from pnpcm.training.recipe import OptimizerConfig, Recipe

Student = NetPrior | ControlledModel
FREE = ("steps", "report", "out", "card", "trackers", "accumulate")
"""Fields of a recipe that may change between stop and resume."""


def build_prior(recipe: Recipe, network: UNet, beside: str | None = None) -> Student:
    """The prior that the recipe trains: with ``network``, or a ControlNet of ``beside``."""
    options = {k: v for k, v in recipe.prior.to_dict().items() if k != "type"}
    if recipe.objective.kind == "edm":
        return DiffusionModel(network, kind="edm", **options)
    prior = ConsistencyModel(network, **options)
    prior.info = {} if beside is None else {"name": beside}
    if recipe.objective.kind == "consistency":
        return prior
    loss: CosignLoss = recipe.loss
    control, about = ControlNet.beside(network), {"task": loss.task}
    return ControlledModel(prior, control, scaled_hint=loss.scaled_hint, info=about)


def start_control(student: Student, path: Path) -> None:
    """Start at the control of an earlier consistency model of the same network."""
    assert isinstance(student, ControlledModel)
    earlier = read_control(path)
    if _shape(earlier.config) != _shape(student.control.config):
        raise CheckpointError(f"{path} has another network than the recipe; train without it")
    student.control.load_state_dict(earlier.state_dict())


def load_weights(path: Path, recipe: Recipe, *, smaller: bool = False) -> NetPrior:
    """A prior from a file, which must have the recipe's network or (``smaller``) a smaller one."""
    prior = load_own(path) if path.suffix == ".safetensors" else load_openai(path)
    network = prior.network
    other = f"{path} has another network than the recipe"
    if not isinstance(network, UNet):
        raise CheckpointError(f"{other}; expected {recipe.network}")
    if _shape(network.config) != _shape(recipe.network):
        if not smaller:
            raise CheckpointError(f"{other}; expected {recipe.network}")
        try:
            check_growth(network.config, recipe.network)
        except ArgumentError as error:
            raise CheckpointError(f"{other}: {error}") from error
    if prior.sigma_data != recipe.prior.sigma_data:
        raise CheckpointError(
            f"{path} has sigma_data {prior.sigma_data}, the recipe {recipe.prior.sigma_data}; "
            "set prior.sigma_data to the former"
        )
    if prior.c_noise != recipe.prior.c_noise:
        wanted = recipe.prior.c_noise
        if prior.c_noise is None:
            raise CheckpointError(
                f"{path} is of kind {prior.kind!r}: its network takes an index in the DDPM table, "
                f"that of the recipe c_noise {wanted!r}; start from a file of kind edm or "
                "consistency"
            )
        raise CheckpointError(
            f"{path} has c_noise {prior.c_noise!r} ({_factor(prior.c_noise)} ln σ), the recipe "
            f"{wanted!r} ({_factor(wanted)} ln σ); set prior.c_noise to the former"
        )
    return prior


def _factor(c_noise: str) -> str:
    return f"{C_NOISE[c_noise]:g}"


def copy_weights(prior: NetPrior, network: UNet) -> None:
    """Copy the weights of ``prior`` to ``network``, which may be larger."""
    own = prior.network
    if isinstance(own, UNet) and _shape(own.config) != _shape(network.config):
        grow(own, network)
        return
    network.load_state_dict({k.removeprefix("network."): v for k, v in prior.state_dict().items()})


def _shape(config: UNetConfig) -> dict[str, Any]:
    """The fields that determine the weights, without dropout, image size and spelling."""
    left_out = ("dropout", "image_size", "channel_mult", "attention_ds", "attention_resolutions")
    fields = {k: v for k, v in config.to_dict().items() if k not in left_out}
    return fields | {
        "channels": config.channels,
        "attention": config.attention_factors,
        "out_channels": config.out_channels or config.in_channels,
    }


def make_optimizer(parameters: Any, config: OptimizerConfig) -> torch.optim.Optimizer:
    """Muon, AdamW or RAdam; the learning rate is set at each step."""
    options: dict[str, Any] = {"betas": config.betas, "weight_decay": config.weight_decay}
    if config.kind == "muon":
        return Muon(parameters, config.lr, **options)
    if config.kind == "adamw":
        return torch.optim.AdamW(parameters, config.lr, fused=True, **options)
    return torch.optim.RAdam(parameters, config.lr, **options)


def learning_rate(config: OptimizerConfig, step: int, steps: int) -> float:
    """Rate of step ``step`` (from 0) of ``steps``."""
    ramp = min(1.0, (step + 1) / config.warmup) if config.warmup else 1.0
    if config.schedule == "cosine":
        ramp *= 0.5 * (1 + math.cos(math.pi * min(step / steps, 1.0)))
    elif config.schedule == "trapezoid":
        ramp *= min(1.0, max(steps - step, 0) / (config.decay * steps))
    return config.lr * ramp


def trained(module: nn.Module) -> list[nn.Parameter]:
    """The weights that are not frozen."""
    return [p for p in module.parameters() if p.requires_grad]


class Averages:
    """EMA copies of trained weights, one per rate: e ← r e + (1 − r) w, started from w.

    ``warmup``: r ← min(r, (1 + k)/(10 + k)) at update k, so that the initial weights decay fast.
    """

    def __init__(self, module: nn.Module, rates: Sequence[float], *, warmup: bool = False) -> None:
        self.rates, self.warmup = tuple(rates), warmup
        self.copies = [[p.detach().clone() for p in trained(module)] for _ in rates]

    @torch.no_grad()
    def update(self, module: nn.Module, k: int) -> None:
        weights = [p.detach() for p in trained(module)]
        ceiling = (1 + k) / (10 + k) if self.warmup else 1.0
        for rate, copies in zip(self.rates, self.copies, strict=True):
            torch._foreach_lerp_(copies, weights, 1 - min(rate, ceiling))

    @torch.no_grad()
    def copy_to(self, module: nn.Module, which: int = 0) -> None:
        """Copy average number ``which`` to ``module``."""
        for parameter, value in zip(trained(module), self.copies[which], strict=True):
            parameter.copy_(value)


class TrainState:
    """Student, target, teacher, optimiser and averages, which can be saved and loaded."""

    def __init__(self, recipe: Recipe, folder: Path) -> None:
        generator_state = torch.get_rng_state()
        torch.manual_seed(recipe.seed)  # nn.Module's initialisation uses the global state
        network = UNet(recipe.network)
        torch.set_rng_state(generator_state)
        self.recipe = recipe
        self.history: list[dict[str, Any]] = []
        self.teacher, beside = None, None
        if recipe.teacher is not None:
            self.teacher = load_weights(existing(recipe.teacher, folder), recipe)
            if self.teacher.kind != "edm":
                raise ArgumentError(f"teacher is of kind {self.teacher.kind!r}, expected 'edm'")
        start = recipe.init_from or recipe.teacher
        if start is not None:
            loaded = load_weights(existing(start, folder), recipe, smaller=True)
            if recipe.objective.kind == "control" and loaded.kind != "consistency":
                raise ArgumentError(
                    f"init_from is of kind {loaded.kind!r}, expected a consistency model to control"
                )
            copy_weights(loaded, network)
            self.history = list(loaded.info.get("training", []))
            beside = loaded.info.get("name")
        self.student: Student = build_prior(recipe, network, beside).train()
        if recipe.control_from is not None:
            start_control(self.student, existing(recipe.control_from, folder))
        self.student.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.target: Student | None = None
        if recipe.objective.target_rate(0, recipe.steps) is not None:
            self.target = copy.deepcopy(self.student).requires_grad_(False)
        self.optimizer = make_optimizer(trained(self.student), recipe.optimizer)
        self.averages = Averages(self.student, recipe.ema, warmup=recipe.ema_warmup)
        self.step, self.skipped, self.seconds = 0, 0, 0.0

    def to(self, device: torch.device) -> None:
        """Move everything that a step uses."""
        for prior in (self.student, self.target, self.teacher):
            if prior is not None:
                prior.to(device)
        self.averages.copies = [[e.to(device) for e in copies] for copies in self.averages.copies]

    @torch.no_grad()
    def follow(self) -> None:
        """Update the averages and the target after an optimiser step."""
        self.averages.update(self.student, self.step)
        rate = self.recipe.objective.target_rate(self.step, self.recipe.steps)
        if self.target is not None and rate is not None:
            ours: list[Tensor] = list(self.target.parameters())
            torch._foreach_lerp_(ours, list(self.student.parameters()), 1 - rate)

    def averaged(self, which: int = 0) -> Student:
        """A copy of the student with averaged weights, ready to use."""
        prior = copy.deepcopy(self.student).eval()
        self.averages.copy_to(prior, which)
        return prior.requires_grad_(False)

    def save(self, path: Path) -> None:
        """Write the state atomically."""
        content: dict[str, Any] = {
            "recipe": json.dumps(self.recipe.to_dict()),
            "student": dict(self.student.state_dict()),
            "target": dict(self.target.state_dict()) if self.target is not None else {},
            "optimizer": self.optimizer.state_dict(),
            "averages": self.averages.copies,
            "step": self.step,
            "skipped": self.skipped,
            "seconds": self.seconds,
            "history": json.dumps(self.history),
        }
        save_tensors(path, lambda temporary: torch.save(content, temporary))

    def load(self, path: Path) -> None:
        """Load the state in ``path``, which must be of the same recipe."""
        with reading(path, "the state of a run", error=CheckpointError):
            content = torch.load(path, map_location="cpu", weights_only=True)
        # through Recipe: a field that did not exist then has its default
        old = Recipe.from_dict(json.loads(content["recipe"])).to_dict()
        old, new = (json.loads(json.dumps(r)) for r in (old, self.recipe.to_dict()))
        changed = [key for key in new if key not in FREE and old.get(key) != new[key]]
        if changed:
            raise ArgumentError(
                f"{path} belongs to a run with another {', '.join(changed)}; continue it with its "
                "own recipe, choose another out, or start from its prior with --init-from"
            )
        self.student.load_state_dict(content["student"])
        if self.target is not None:
            self.target.load_state_dict(content["target"])
        self.optimizer.load_state_dict(content["optimizer"])
        with torch.no_grad():
            for ours, theirs in zip(self.averages.copies, content["averages"], strict=True):
                for a, b in zip(ours, theirs, strict=True):
                    a.copy_(b)
        self.step, self.skipped = content["step"], content["skipped"]
        self.seconds, self.history = content["seconds"], json.loads(content["history"])
