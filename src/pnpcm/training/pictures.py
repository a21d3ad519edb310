"""Figures of a run: the denoising curve, and samples."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from torch import Tensor

from pnpcm.errors import MissingExtraError
from pnpcm.io.files import Picture, save_picture, stack, strip, write_atomically
from pnpcm.priors.checkpoint import NetPrior
from pnpcm.priors.controlled import ControlledModel
from pnpcm.priors.generate import consistency_sample, heun_sample, reaches_noise
from pnpcm.rng import generators, randn_like


def save_curve(log: Path, path: Path) -> None:
    """Plot the PSNR per noise level and the loss from a JSON-lines log."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("curves need matplotlib; pip install pnpcm[train]") from error
    rows = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    scores = [row for row in rows if "psnr" in row]
    losses = [row for row in rows if "loss" in row]
    figure = Figure(figsize=(10, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    for sigma in scores[-1]["psnr"] if scores else ():
        points = [(row["minutes"], row["psnr"][sigma]) for row in scores if sigma in row["psnr"]]
        left.plot(*zip(*points, strict=True), marker=".", label=f"σ = {sigma}")
    left.set(xlabel="minutes", ylabel="validation PSNR (dB)")
    left.legend(fontsize=7, ncol=2)
    right.plot([row["step"] for row in losses], [row["loss"] for row in losses])
    right.set(xlabel="step", ylabel="loss")
    if all(row["loss"] > 0 for row in losses):
        right.set_yscale("log")
    write_atomically(path, lambda temporary: figure.savefig(temporary, dpi=110))


def save_samples(prior: NetPrior, size: int, n_steps: int, out: Path, *, columns: int = 8) -> None:
    """``samples.png``: a denoiser by Heun's method, a consistency model in 1, 2 and 4 steps.

    Nothing is written for a prior whose levels do not reach pure noise.
    """
    if not reaches_noise(prior):
        return
    channels = getattr(prior.network, "in_channels", 3)
    shape, rows = (columns, channels, size, size), []
    if prior.kind == "consistency":
        for n in (1, 2, 4):
            x = consistency_sample(prior, shape, generator=generators(range(columns)), n_steps=n)
            rows.append(grid(x, f"{n} NFE"))
    else:
        x = heun_sample(prior, shape, generator=generators(range(columns)), n_steps=n_steps)
        rows.append(grid(x, f"Heun, {2 * n_steps - 1} NFE"))
    save_picture(out / "samples.png", stack(rows))


def save_hinted(
    prior: ControlledModel, x: Tensor, hint: Tensor, out: Path, *, columns: int = 8
) -> None:
    """``samples.png``: hints, the result of one evaluation from noise, and the truth."""
    x, hint = x[:columns], hint[:columns]
    noise = prior.sigma_max * randn_like(x, generators(range(len(x))))
    restored = prior(noise, prior.sigma_max, hint=hint)
    rows = [grid(hint, "hint"), grid(restored, "1 NFE"), grid(x, "truth")]
    save_picture(out / "samples.png", stack(rows))


def grid(x: Tensor, label: str) -> Picture:
    """A row of images under one label."""
    shown = visible(x)
    return strip([(label if i == 0 else "", image) for i, image in enumerate(shown)], side=96)


def visible(x: Tensor) -> Tensor:
    """Images for display: two channels become a magnitude in [-1, 1]."""
    return 2 * torch.linalg.vector_norm(x, dim=1, keepdim=True) - 1 if x.shape[1] == 2 else x
