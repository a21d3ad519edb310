"""Random numbers from explicit generators, one per image.

A result does not depend on the other images of its batch: every draw for image ``i`` uses generator
``i``, in float32 for any dtype of the problem, so that a float64 run has the same noise. The global
random state is neither read nor advanced.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from pnpcm.core import Generators
from pnpcm.errors import ArgumentError


def generators(seeds: Sequence[int], device: torch.device | str = "cpu") -> list[torch.Generator]:
    """One generator per seed."""
    return [torch.Generator(device).manual_seed(int(seed)) for seed in seeds]


def per_image(generator: Generators | None, batch: int) -> list[torch.Generator]:
    """One generator for each of ``batch`` images.

    A sequence is used unchanged, and so is a single generator for a single image. For more images
    a single generator is the parent: image ``i`` gets a child seeded by its ``i``-th 63-bit draw.
    """
    if generator is None:
        raise ArgumentError(
            "generator is None, but random numbers are needed; "
            "give torch.Generator().manual_seed(0) or a list with one per image"
        )
    each = [generator] if isinstance(generator, torch.Generator) else generator
    if not (isinstance(each, Sequence) and all(isinstance(g, torch.Generator) for g in each)):
        raise ArgumentError(
            f"generator is {generator!r}, expected a torch.Generator or a list with one per image; "
            "from a seed: torch.Generator().manual_seed(seed)"
        )
    if isinstance(generator, torch.Generator):
        if batch == 1:
            return [generator]
        seeds = torch.randint(2**63 - 1, (batch,), generator=generator, device=generator.device)
        return generators(seeds.tolist(), generator.device)
    if len(generator) != batch:
        raise ArgumentError(
            f"generator has {len(generator)} entries for a batch of {batch} images; "
            "give one per image, or a single parent generator"
        )
    return list(generator)


def randn(shape: Sequence[int], generator: torch.Generator, like: Tensor) -> Tensor:
    """Standard normal values of ``shape``; complex ``like``: unit variance in each part."""
    if like.is_complex():
        parts = torch.randn((*shape, 2), generator=generator, device=generator.device)
        return torch.view_as_complex(parts).to(like)
    return torch.randn(tuple(shape), generator=generator, device=generator.device).to(like)


def randn_like(x: Tensor, generator: Generators | None) -> Tensor:
    """Standard normal values like ``x`` ``(B, …)``, image ``i`` drawn from generator ``i``."""
    draws = [randn(x.shape[1:], g, x) for g in per_image(generator, x.shape[0])]
    if len(draws) == 1:
        return draws[0][None]  # stacking would copy a large image
    return torch.stack(draws) if draws else torch.empty_like(x)


def uniform_like(x: Tensor, generator: Generators | None) -> Tensor:
    """Uniform values in [0, 1) like the real tensor ``x``, image ``i`` from generator ``i``."""
    draws = [
        torch.rand(x.shape[1:], generator=g, device=g.device).to(x)
        for g in per_image(generator, x.shape[0])
    ]
    return torch.stack(draws)
