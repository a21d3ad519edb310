"""measure: the simulated measurement y = A(x) + noise of a known image."""

from __future__ import annotations

import torch
from torch import Tensor

from pnpcm.arguments import check_float
from pnpcm.core import Generators, Operator, ValueRange
from pnpcm.errors import ArgumentError
from pnpcm.rng import randn_like


def check_sigma_y(sigma_y: float) -> None:
    """Raise an error unless ``sigma_y`` is from 0 to 1; a level of 8 bits gets a remedy."""
    if 0 <= sigma_y <= 1:
        return
    remedy = ""
    if 1 < sigma_y <= 255:
        right = f"{sigma_y / 255:.3g}"
        remedy = f"; {sigma_y:g} of 255 is {right}: write {right} or {sigma_y:g}/255"
    raise ArgumentError(
        f"sigma_y must be from 0 to 1, got {sigma_y:g}: it is on the [0, 1] scale{remedy}"
    )


def measure(
    operator: Operator,
    x: Tensor,
    sigma_y: float = 0.05,
    *,
    generator: Generators | None = None,
    value_range: ValueRange = (-1.0, 1.0),
) -> Tensor:
    """y = A(x) + noise_std · n, with n standard normal where A measures.

    ``sigma_y`` is on the [0, 1] scale; the noise added to images in [-1, 1] has
    ``noise_std = 2 sigma_y``. This is the only conversion. Where the measurement differs from A (a
    real JPEG codec), ``operator.acquire`` is used instead of A.
    """
    check_sigma_y(sigma_y)
    if not isinstance(operator, Operator):
        raise ArgumentError(
            f"operator is a {type(operator).__name__} without A; measure takes (operator, x)"
        )
    check_float("x", x)
    if not bool(torch.isfinite(x).all()):
        raise ArgumentError("x holds NaN or infinity; clean the image first")
    y: Tensor = getattr(operator, "acquire", operator.A)(x)
    if sigma_y == 0:
        return y
    noise_std = sigma_y * (value_range[1] - value_range[0])
    noise_like = getattr(operator, "noise_like", randn_like)
    return y + noise_std * noise_like(y, generator)
