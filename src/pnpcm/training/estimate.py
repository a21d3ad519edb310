"""Estimate of the parameters, memory and steps of a run, without running it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from pnpcm.networks import UNet
from pnpcm.networks.control import ControlledUNet, ControlNet
from pnpcm.training.recipe import Recipe

GiB = 2**30


@dataclass(frozen=True)
class Estimate:
    """Bytes are for one process with ``batch // accumulate`` images at a time."""

    parameters: int
    state_bytes: int
    activation_bytes: int
    steps: int
    samples: int

    def __str__(self) -> str:
        total = self.state_bytes + self.activation_bytes
        return (
            f"parameters   {self.parameters:,}\n".replace(",", " ")
            + f"memory       {total / GiB:.1f} GiB: {self.state_bytes / GiB:.1f} weights, averages "
            f"and optimiser, {self.activation_bytes / GiB:.1f} activations\n"
            + f"steps        {self.steps:,}\n".replace(",", " ")
            + f"samples      {self.samples:,}".replace(",", " ")
        )


def estimate(recipe: Recipe, *, processes: int = 1, side: int | None = None) -> Estimate:
    """The estimate of a recipe, on the meta device, where tensors have shapes but no memory.

    ``side``: image side; None: the crop, or the network's own. Weights, gradients, two moments,
    averages, target, teacher and frozen parts are float32. Activations are the tensors that
    autograd stores for one image, times the images at once; half of that with mixed precision.
    """
    loss = recipe.objective
    side = side or recipe.data.crop or recipe.network.image_size or 64
    with torch.device("meta"):
        unet = UNet(recipe.network)
        x = torch.empty(1, recipe.network.in_channels, side, side)
        if loss.kind == "control":
            network: nn.Module = ControlledUNet(unet, ControlNet(recipe.network))
            kept = _saved_bytes(network, x, x)
        else:
            network, kept = unet, _saved_bytes(unet, x)
    parameters = sum(p.numel() for p in network.parameters() if p.requires_grad)
    frozen = sum(p.numel() for p in network.parameters()) - parameters
    copies = 4 + len(recipe.ema)  # weights, gradients, two moments, averages
    copies += (loss.target_rate(0, recipe.steps) is not None) + (recipe.teacher is not None)
    at_once = max(1, recipe.batch // (recipe.accumulate * processes))
    half = 2 if recipe.precision in ("fp16", "bf16") else 1
    return Estimate(
        parameters, 4 * (copies * parameters + frozen), kept * at_once // half, recipe.steps,
        recipe.steps * recipe.batch,
    )  # fmt: skip


def _saved_bytes(network: nn.Module, x: Tensor, *hint: Tensor) -> int:
    """Bytes that autograd stores for the backward pass, without weights."""
    own = {id(p) for p in network.parameters()}
    sizes: dict[int, int] = {}
    alive: list[Tensor] = []

    def pack(tensor: Tensor) -> Tensor:
        base = tensor._base if tensor._base is not None else tensor
        if id(base) not in own:
            alive.append(base)  # an id is unique only while its object exists
            sizes[id(base)] = base.numel() * base.element_size()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        network(x, torch.empty(1, device=x.device), *hint)
    return sum(sizes.values())
