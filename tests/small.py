"""Small runs for the tests: 2×2 Gaussian images whose best denoiser is known."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pnpcm.io.yaml_files import build
from pnpcm.training.losses import LOSSES
from pnpcm.training.recipe import Recipe

SIDE, MEAN, COMMON, OWN = 2, 0.2, 0.25, 0.15
"""x = MEAN + COMMON g + OWN e: one normal g per image, one e per pixel."""

NETWORK = {
    "image_size": None,
    "in_channels": 1,
    "model_channels": 16,
    "channel_mult": [1],
    "num_res_blocks": 1,
    "attention_ds": [],
    "middle_attention": False,
    "norm": False,
    "use_scale_shift_norm": True,
}


def write_data(folder: Path, n: int = 8192) -> Path:
    rng = np.random.default_rng(0)
    x = MEAN + COMMON * rng.standard_normal((n, 1, 1)) + OWN * rng.standard_normal((n, SIDE, SIDE))
    path = folder / "gaussian.npz"
    np.savez(path, images=x.astype(np.float32))
    return path


def recipe(folder: Path, method: str, **changes: Any) -> Recipe:
    values: dict[str, Any] = {
        "name": "small",
        "method": method,
        "out": "run",
        "steps": 300,
        "batch": 64,
        "network": NETWORK,
        "data": {"sources": [{"kind": "npz", "path": "gaussian.npz"}], "flip": "none"},
        "optimizer": {"kind": "adamw", "lr": 3e-3, "warmup": 50, "schedule": "cosine", "clip": 1.0},
        "ema": [0.99],
        "report": {"log_every": 10, "checkpoint_minutes": 60.0, "evaluate_every": 10**9},
    }
    return build(Recipe, values | changes, loss=LOSSES[method])


def exact(x: Tensor, sigma: float, kind: str) -> Tensor:
    """The best denoiser, or the end of the probability-flow ODE, written out.

    The covariance COMMON² 11ᵀ + OWN² I has two eigenvalues: that of the mean and of the rest.
    """
    level = x.mean((1, 2, 3), keepdim=True)
    out = torch.full_like(x, MEAN)
    for part, variance in (
        (level - MEAN, SIDE**2 * COMMON**2 + OWN**2),
        (x - level, OWN**2),
    ):
        shrink = variance / (variance + sigma**2)
        if kind == "consistency":
            shrink = math.sqrt((variance + 0.002**2) / (variance + sigma**2))
        out = out + shrink * part
    return out


def fresh(n: int, seed: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
    """Images that no training has seen, and noise."""
    g = torch.Generator().manual_seed(seed)
    common = torch.randn((n, 1, 1, 1), generator=g)
    own, noise = torch.randn((2, n, 1, SIDE, SIDE), generator=g)
    return MEAN + COMMON * common + OWN * own, noise
