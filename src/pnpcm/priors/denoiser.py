"""Denoisers of other libraries as priors, and the files of KAIR's DRUNet, FFDNet and DnCNN."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pnpcm.core import ValueRange
from pnpcm.errors import ArgumentError, CheckpointError
from pnpcm.networks.kair import DenoiserConfig, build_denoiser
from pnpcm.priors.base import Network, NetworkPrior, levels
from pnpcm.priors.files import INVALID, StateDict, build_empty, fill

GREY_LEVELS = 255.0
LEAST_SIGMA = 1e-3
"""Lower end of trained levels instead of 0: schedules in ln σ need a positive one."""
TRAINED_TO = {"drunet": 50, "ffdnet": 75}
"""Highest training level of the published files, in units of 1/255; the lowest is 0."""
BLIND_TO = 55
"""The same for a DnCNN that was trained for all levels."""


class DenoiserPrior(NetworkPrior):
    r"""A denoiser D as a prior of kind "edm", without scalings.

    .. math:: \text{prior}(x, \sigma) =
              D\big(x,\ \min(\max(\sigma, \sigma_{min}), \sigma_{max})\big)

    ``sigma_min`` and ``sigma_max`` are the levels that D was trained for, in units of
    ``value_range``: 50/255 for images in [0, 1]. Other levels are clamped to these, with one
    warning. D may ignore the level (DnCNN).
    """

    kind = "edm"

    def __init__(
        self,
        network: Network,
        *,
        sigma_min: float = LEAST_SIGMA,
        sigma_max: float = 50 / GREY_LEVELS,
        value_range: ValueRange = (0.0, 1.0),
    ) -> None:
        super().__init__(network, sigma_min=sigma_min, sigma_max=sigma_max, value_range=value_range)
        self._warned = False

    def forward(self, x: Tensor, sigma: float | Tensor) -> Tensor:
        level = levels(sigma, x)
        told = level.clamp(self.sigma_min, self.sigma_max)
        if not self._warned and not torch.allclose(told, level, rtol=1e-5, atol=0.0):
            self._warn(float(level[(told - level).abs().argmax()]))
        return self.run_network(x, told)[:, : x.shape[1]]

    def _warn(self, level: float) -> None:
        self._warned = True
        low, high = self.sigma_min, self.sigma_max
        warnings.warn(
            f"sigma is {level:g}, this denoiser was trained for {low:.4g} to {high:.4g} (images in "
            f"{self.value_range}) and is evaluated at {min(max(level, low), high):.4g}",
            stacklevel=5,
        )

    @classmethod
    def example(cls) -> DenoiserPrior:
        """A tiny prior with a fixed smooth denoiser, for the laws."""
        return cls(_shrink, sigma_min=0.002, sigma_max=80.0, value_range=(-1.0, 1.0))


def _shrink(x: Tensor, sigma: Tensor) -> Tensor:
    """tanh(x) / (1 + σ²)"""
    return torch.tanh(x) / (1 + sigma.to(x.dtype).reshape(-1, 1, 1, 1) ** 2)


# --- files --------------------------------------------------------------------------------------


def denoiser_from_state(
    path: Path,
    state: StateDict,
    config: DenoiserConfig,
    sigma_min: float | None,
    sigma_max: float | None,
) -> DenoiserPrior:
    """The DRUNet, FFDNet or DnCNN with the weights ``state`` of a ``.pth`` file, on [0, 1].

    ``sigma_min`` and ``sigma_max``: the levels of its training, on the [0, 1] scale. None: those of
    the published files, 0 to 50/255 (DRUNet) or 75/255 (FFDNet). A DnCNN has no input for the level
    and was trained for one, which its file name must contain: ``dncnn_25.pth`` is for (25 ± ½)/255
    and ``dncnn_color_blind.pth`` for 0 to 55/255.
    """
    low, high = LEAST_SIGMA, sigma_max
    if high is None:
        low, high = _trained_levels(path, config)
    options = {"sigma_min": low if sigma_min is None else sigma_min, "sigma_max": high}
    if not 0 <= options["sigma_min"] < high:
        raise ArgumentError(
            f"expected 0 ≤ sigma_min < sigma_max, got {options['sigma_min']:g} and {high:g}; a "
            "denoiser for one level has a narrow range around it"
        )
    prior = build_denoiser_prior(path, config, state, "is it a published file of KAIR?", options)
    prior.info = {"name": path.stem}
    return prior


def _trained_levels(path: Path, config: DenoiserConfig) -> tuple[float, float]:
    """(lowest, highest) level on the [0, 1] scale."""
    if config.architecture != "dncnn":
        return LEAST_SIGMA, TRAINED_TO[config.architecture] / GREY_LEVELS
    if "blind" in path.stem.lower():
        return LEAST_SIGMA, BLIND_TO / GREY_LEVELS
    told = re.search(r"_(\d+)$", path.stem)
    if told is None:
        raise CheckpointError(
            f"{path} holds a DnCNN, whose weights do not show the level it was trained for; give "
            "the file its published name (dncnn_25.pth, dncnn_color_blind.pth), or sigma_min and "
            "sigma_max on the [0, 1] scale"
        )
    level = int(told[1])
    return (level - 0.5) / GREY_LEVELS, (level + 0.5) / GREY_LEVELS


def build_denoiser_prior(
    path: Path,
    config: DenoiserConfig,
    state: StateDict,
    move: str,
    options: Mapping[str, Any],
) -> DenoiserPrior:
    """The denoiser of ``config`` with the weights ``state``, frozen.

    ``move``: the remedy in the error message if the weights do not fit.
    """
    network = build_empty(path, build_denoiser, config, state)
    fill(path, network, state, move)
    try:
        prior = DenoiserPrior(network, **options)
    except INVALID as error:
        raise CheckpointError(f"{path} has invalid options ({error}); save it again") from error
    return prior.eval().requires_grad_(False)
