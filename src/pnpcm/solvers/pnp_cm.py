"""PnP-CM: ADMM whose proximal operator of the prior is a consistency model."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import torch
from torch import Tensor

from pnpcm.core import Generators, Operator, Prior, Result, Step, ValueRange
from pnpcm.counted import CountedPrior
from pnpcm.errors import ArgumentError, OperatorError, ShapeError
from pnpcm.linalg import norm
from pnpcm.rng import per_image, randn_like
from pnpcm.solvers.config import PnPCMConfig


class PnPCM:
    r"""ADMM whose prior step is a noise-injected consistency model, with momentum.

    .. math::
        z_k &= \operatorname{argmin}_z \tfrac12\|A(z) - y\|^2
               + \tfrac{\rho_k}{2}\|z - (\tilde x - \tilde u)\|^2 \\
        x_k &= f_\theta\big(z_k + \tilde u + \sigma_k n,\ (1+\delta_k)\,\sigma_k\big),
               \quad n \sim N(0, I) \\
        u_k &= \tilde u + z_k - x_k \\
        (\tilde x, \tilde u) &= (x_k, u_k) + \mu_k\big[(x_k, u_k) - (x_{k-1}, u_{k-1})\big]

    Costs ``n_steps`` prior calls. Source: Gülle et al., PnP-CM (CVPR 2026), Algorithm 1.

    >>> result = PnPCM(prior, PRESETS["celeba-hq/superres-4"].solver)(y, operator, generator=g)
    """

    def __init__(self, prior: Prior, config: PnPCMConfig) -> None:
        if not isinstance(config, PnPCMConfig):
            raise ArgumentError(
                f"config must be a PnPCMConfig, got {type(config).__name__}; "
                "a preset's configuration is PRESETS[name].solver"
            )
        self.prior, self.config = prior, config

    def __call__(
        self,
        y: Tensor,
        operator: Operator,
        *,
        generator: Generators | None = None,
        x_init: Tensor | None = None,
        callback: Callable[[Step], None] | None = None,
        value_range: ValueRange = (-1.0, 1.0),
    ) -> Result:
        """Reconstruct the batch ``y``.

        ``value_range`` is the range of images as the operator sees them; deepinv users pass
        (0, 1). ``generator``: one for the batch or one per image, needed unless noise is off.
        """
        _check_call(y, operator, x_init)
        # gradients only where a data step asks for them, even under torch.inference_mode()
        with torch.inference_mode(False), torch.no_grad():
            y = y.clone() if y.is_inference() else y
            return self._run(y, operator, generator, x_init, callback, value_range)

    def _run(
        self,
        y: Tensor,
        operator: Operator,
        generator: Generators | None,
        x_init: Tensor | None,
        callback: Callable[[Step], None] | None,
        value_range: ValueRange,
    ) -> Result:
        start = time.perf_counter()
        config, prior = self.config, CountedPrior(self.prior, value_range)
        low, high = value_range
        unit = (high - low) / 2  # configurations are quoted for [-1, 1]
        noisy = config.noise_scale > 0
        generators = per_image(generator, len(y)) if noisy or generator is not None else []
        z_prev = self._z_start(y, operator, generators)
        x = self._start(y, operator, x_init, z_prev, (low + high) / 2)
        u = torch.zeros_like(x)
        x_ahead, u_ahead = x, u
        residuals = []
        steps = zip(config.sigmas, config.deltas, config.rhos, config.momentum, strict=True)
        # images may be large: what is not needed again is dropped at once, and what nobody else
        # can hold (callbacks keep x, z, u) is changed in place
        for k, (sigma, delta, rho, mu) in enumerate(steps, start=1):
            v = x_ahead - u_ahead
            del x_ahead
            z = config.data_step(v, y, operator, rho, z_prev=z_prev)
            del v
            z_moved = norm(z - (x if z_prev is None else z_prev))
            z_prev, total = z, z + u_ahead
            del u_ahead
            noised = total
            if noisy:
                noised = randn_like(total, generators)
                noised.mul_(config.noise_scale * sigma * unit).add_(total)
            x_next = prior(noised, (1 + delta) * sigma * unit)
            del noised
            if not _is_finite(x_next):
                raise ArgumentError(
                    f"prior returned NaN or infinity in iteration {k} at σ = {sigma:g}; "
                    "check its weights and the scale of y"
                )
            if config.clamp:
                x_next = x_next.clamp(low, high)
            u_next = total - x_next
            del total
            dx, du = x_next - x, u_next - u
            residuals.append((norm(dx) + z_moved + norm(du)) / math.sqrt(x[0].numel()))
            x, u = x_next, u_next
            x_ahead, u_ahead = dx.mul_(mu).add_(x), du.mul_(mu).add_(u)  # noqa: F841  # seen by k + 1
            del x_next, u_next, dx, du
            if callback is not None:
                callback(Step(k=k, sigma=sigma, rho=rho, x=x, z=z, u=u))
        seconds = time.perf_counter() - start
        return Result(x, prior.nfe, prior.vjps, seconds, torch.stack(residuals))

    def _start(
        self,
        y: Tensor,
        operator: Operator,
        x_init: Tensor | None,
        z_start: Tensor | None,
        middle: float,
    ) -> Tensor:
        if x_init is not None:
            return x_init.clone() if x_init.is_inference() else x_init
        if self.config.init == "z_start" and z_start is not None:
            return z_start
        if self.config.init == "auto" and hasattr(operator, "x_start"):
            x: Tensor = operator.x_start(y)
            return x
        real = y.real.dtype if y.is_complex() else y.dtype
        return torch.full(_image_shape(y, operator), middle, dtype=real, device=y.device)

    def _z_start(
        self, y: Tensor, operator: Operator, generators: list[torch.Generator]
    ) -> Tensor | None:
        """Where an iterative data step begins: the operator's own start, else None (v)."""
        offered = getattr(operator, "z_start", None)
        return None if offered is None else offered(y, generators or None)


def _check_call(y: Tensor, operator: Operator, x_init: Tensor | None) -> None:
    if not isinstance(y, Tensor):
        raise ArgumentError(f"y is a {type(y).__name__}, expected a torch.Tensor (B, …)")
    if not isinstance(operator, Operator):
        raise OperatorError(f"operator is a {type(operator).__name__} without A(x); see core.py")
    if y.ndim < 2 or len(y) == 0:
        raise ShapeError(f"y has shape {tuple(y.shape)}, expected a batch (B, …) of at least one")
    if not _is_finite(y):
        raise ArgumentError("y holds NaN or infinity; mask or repair the measurement first")
    if x_init is None:
        return
    if x_init.is_complex():
        raise ArgumentError("x_init is complex; give two channels (real, imaginary), (B, 2, H, W)")
    if not _is_finite(x_init):
        raise ArgumentError("x_init holds NaN or infinity; give a finite start")
    known = hasattr(operator, "x_shape") or hasattr(operator, "A_adjoint")
    shape = _image_shape(y, operator) if known else (len(y), *x_init.shape[1:])
    if tuple(x_init.shape) != shape:
        raise ShapeError(
            f"x_init has shape {tuple(x_init.shape)}, y {tuple(y.shape)} was measured from {shape}"
        )


def _is_finite(x: Tensor) -> bool:
    """Neither NaN nor infinity anywhere; unlike ``torch.isfinite`` without a copy of ``x``."""
    real = torch.view_as_real(x.resolve_conj()) if x.is_complex() else x
    return x.numel() == 0 or all(math.isfinite(end) for end in torch.aminmax(real))


def _image_shape(y: Tensor, operator: Operator) -> tuple[int, ...]:
    if hasattr(operator, "x_shape"):
        return tuple(operator.x_shape(y))
    if hasattr(operator, "A_adjoint"):
        return tuple(operator.A_adjoint(y).shape)
    raise OperatorError(
        f"{type(operator).__name__} has neither x_shape nor A_adjoint, so the shape of the image "
        "is unknown; give x_init"
    )
