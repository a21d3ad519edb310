"""Base classes of operators. Their use is optional: solvers only need ``core.Operator``.

``OperatorBase``           any differentiable forward model
``LinearOperatorBase``     adds adjoint, prox, pseudo-inverse, conditional draws, by per-image CG
``DecomposableOperator``   the same in closed form from A = U S Vᵀ

Public methods check shapes; ``_A``, ``_A_adjoint`` and the other private methods contain only the
mathematics. Operators are stateless: a call changes neither the operator nor its arguments. They
use the dtype and device of their input; ``.to()`` moves their constants.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from typing import Any, Self

import torch
from torch import Tensor

from pnpcm.arguments import Gamma, check_float, check_positive
from pnpcm.core import Generators
from pnpcm.errors import ArgumentError, ShapeError
from pnpcm.linalg import cg
from pnpcm.operators.traits import PROX, Misfit, Traits, lbfgs, usual_misfit
from pnpcm.rng import per_image, randn_like


# constant tensors --------------------------------------------------------------------------------
class Constants:
    """Base class with constant tensors that are cast to the dtype and device of the input."""

    def __init__(self) -> None:
        self._copies: dict[tuple[str, torch.dtype, torch.device], Tensor] = {}

    def to(self, *args: Any, **kwargs: Any) -> Self:
        """Copy of this object with its constants moved, as ``Tensor.to`` would."""
        device, dtype, *_ = torch._C._nn._parse_to(*args, **kwargs)
        moved = copy.copy(self)
        moved._copies = {}
        for name, value in vars(self).items():
            if isinstance(value, Tensor):
                keep = not (value.is_floating_point() or value.is_complex())
                setattr(moved, name, _move(value, None if keep else dtype, device))
            elif isinstance(value, Constants):
                setattr(moved, name, value.to(*args, **kwargs))
            elif isinstance(value, torch.nn.Module):
                setattr(moved, name, copy.deepcopy(value).to(*args, **kwargs))
        return moved

    def _like(self, name: str, x: Tensor) -> Tensor:
        """The constant ``self.name`` in the dtype and on the device of ``x``, cached."""
        key = (name, x.dtype, x.device)
        if key not in self._copies:
            real = x.real.dtype if x.is_complex() else x.dtype
            with torch.inference_mode(False):  # cached: must also be usable with autograd
                self._copies[key] = _move(getattr(self, name), real, x.device)
        return self._copies[key]


def as_constant(name: str, value: object) -> Tensor:
    """A copy of a tensor, an array or nested lists as a tensor."""
    try:
        return torch.as_tensor(value).detach().resolve_conj().clone()
    except (TypeError, ValueError, RuntimeError) as error:
        raise ArgumentError(
            f"{name} is a {type(value).__name__}, expected a tensor or an array ({error})"
        ) from error


def _move(value: Tensor, dtype: torch.dtype | None, device: torch.device | None) -> Tensor:
    """A constant moved to ``dtype`` and ``device``; complex ones to the complex ``dtype``."""
    if dtype is not None and value.is_complex():
        dtype = dtype.to_complex()
    return value.to(device=device, dtype=dtype)


# operators ---------------------------------------------------------------------------------------
class OperatorBase(Constants, ABC):
    """Forward model ``y = A(x)`` with its shapes, noise and measurement."""

    linear = False
    noise_model = None  # attribute of deepinv; here noise is added only by ``measure``
    image_shape: tuple[int, ...] | None = None  # (C, H, W) if the operator is for one shape

    def __repr__(self) -> str:
        size = "" if self.image_shape is None else "×".join(map(str, self.image_shape))
        return f"{type(self).__name__}({size})"

    @classmethod
    @abstractmethod
    def example(
        cls, generator: torch.Generator, *, batch: int = 1, size: tuple[int, int] = (16, 20)
    ) -> tuple[OperatorBase, Tensor]:
        """A small operator and images of about ``size``, on which the laws are tested."""

    # forward -----------------------------------------------------------------------------------
    @abstractmethod
    def _A(self, x: Tensor) -> Tensor: ...

    def A(self, x: Tensor) -> Tensor:
        """The forward model that solvers use, differentiable in ``x``."""
        self._check_x(x)
        return self._A(x)

    def __call__(self, x: Tensor) -> Tensor:
        return self.A(x)

    def acquire(self, x: Tensor) -> Tensor:
        """The measurement without noise: ``A(x)``, or the output of a real codec."""
        return self.A(x)

    def A_vjp(self, x: Tensor, v: Tensor) -> Tensor:
        """Jᵀv, the product of ``v`` with the Jacobian of A at ``x``."""
        with torch.enable_grad():
            leaf = x.detach().requires_grad_()
            y = self.A(leaf)
            (product,) = torch.autograd.grad(y, leaf, v)
        return product

    # shapes and noise --------------------------------------------------------------------------
    def x_shape(self, y: Tensor) -> tuple[int, ...]:
        """Shape of the image batch that ``y`` was measured from; here: that of ``y``."""
        return (y.shape[0], *(self.image_shape or y.shape[1:]))

    def n_measured(self, y: Tensor) -> int:
        """Number m of measured real values in ``y``: E‖noise‖² = noise_std² m."""
        return y.numel() * (2 if y.is_complex() else 1)

    def noise_like(self, y: Tensor, generator: Generators | None) -> Tensor:
        """Standard normal noise where A measures, zero elsewhere."""
        return randn_like(y, generator)

    # defaults of a reconstruction ------------------------------------------------------------
    def traits(self, noise_std: float) -> Traits:
        """Default data step, start and steps of a reconstruction, for this noise on y."""
        return Traits(data_step=PROX if self.linear else lbfgs())

    @property
    def preset_options(self) -> dict[str, Any]:
        """The options that presets are matched by."""
        return {}

    def misfit(self, x: Tensor, y: Tensor, noise_std: float) -> Misfit:
        """The distance of A(x) from y, and the distance expected from noise alone."""
        return usual_misfit(self, x, y, noise_std, self.n_measured(y))

    def _check_x(self, x: Tensor, name: str = "x") -> None:
        expected = self.image_shape
        check_float(name, x)
        if expected is None:
            if x.ndim != 4:
                raise ShapeError(f"{name} has shape {tuple(x.shape)}, {self!r} takes (B, C, H, W)")
        elif tuple(x.shape[1:]) != expected or x.ndim != len(expected) + 1:
            raise ShapeError(
                f"{name} has shape {tuple(x.shape)}, {self!r} takes (B, "
                f"{', '.join(map(str, expected))}); build the operator for this image size"
            )


class LinearOperatorBase(OperatorBase):
    """Linear forward model: subclasses give ``_A`` and ``_A_adjoint``, the rest is solved by CG.

    CG stops at a relative residual of 1e-7 (float32) or 1e-11 (float64), or after ``max_iter``.
    """

    linear = True
    max_iter = 500

    @abstractmethod
    def _A_adjoint(self, y: Tensor) -> Tensor: ...

    def A_adjoint(self, y: Tensor) -> Tensor:
        """Aᵀy for the real inner product."""
        self._check_y(y)
        return self._A_adjoint(y)

    def A_adjoint_A(self, x: Tensor) -> Tensor:
        """AᵀA x, the normal operator."""
        return self._A_adjoint(self._A(x))

    def _precondition(self, r: Tensor, gamma: Gamma) -> Tensor:
        """Cheap approximation of (γAᵀA + 1)⁻¹ r; here none."""
        return r

    def prox_l2(
        self,
        z: Tensor,
        y: Tensor,
        gamma: Gamma,
        *,
        solver: object = None,
        max_iter: object = None,
        tol: object = None,
        verbose: object = None,
    ) -> Tensor:
        """argmin_x γ/2 ‖Ax − y‖² + ½ ‖x − z‖² = (γAᵀA + 1)⁻¹ (γAᵀy + z).

        The keywords after ``gamma`` are deepinv's; they are accepted and ignored.
        """
        self._check_pair(z, y, "z")
        return self._prox_l2(z, y, check_positive("gamma", gamma, z))

    def _prox_l2(self, z: Tensor, y: Tensor, gamma: Gamma) -> Tensor:
        """x = z + d with (γAᵀA + 1) d = γAᵀ(y − Az): d is small in late iterations."""
        b = gamma * self._A_adjoint(y - self._A(z))
        return z + self._solve_normal(b, gamma)

    def _solve_normal(self, b: Tensor, gamma: Gamma) -> Tensor:
        """(γAᵀA + 1)⁻¹ b."""
        return cg(
            lambda p: gamma * self.A_adjoint_A(p) + p,
            b,
            max_iter=self.max_iter,
            tol=_tolerance(b),
            precondition=lambda r: self._precondition(r, gamma),
        )

    def A_dagger(
        self,
        y: Tensor,
        reg: float = 0.0,
        *,
        solver: object = None,
        max_iter: object = None,
        tol: object = None,
        verbose: object = None,
    ) -> Tensor:
        """Aᵀ(AAᵀ + reg)⁻¹ y; ``reg = 0``: the pseudo-inverse. Other keywords are deepinv's."""
        self._check_y(y)
        if reg < 0:
            raise ArgumentError(f"reg must be ≥ 0, got {reg}")
        return self._A_dagger(y, float(reg))

    def _A_dagger(self, y: Tensor, reg: float) -> Tensor:
        """CG on the least-squares side, (AᵀA + reg) x = Aᵀy: the same x, and image-sized.

        Singular values below the rounding of the squared system are treated as zero.
        """
        return cg(
            lambda p: self.A_adjoint_A(p) + reg * p,
            self._A_adjoint(y),
            max_iter=self.max_iter,
            tol=_tolerance(y),
            rank_tol=30 * torch.finfo(y.dtype).eps,
        )

    def sample_conditional(
        self, v: Tensor, y: Tensor, noise_std: float, eta: float, generator: Generators | None
    ) -> Tensor:
        r"""A draw from the density ∝ exp(−‖Az−y‖²/2 noise_std² − ‖z−v‖²/2 eta²).

        Perturb and solve: the prox of noisy v and noisy y with γ = eta²/noise_std² is such a draw.
        """
        self._check_pair(v, y, "v")
        check_positive("noise_std", noise_std, v)
        check_positive("eta", eta, v)
        gens = per_image(generator, v.shape[0])
        return self._sample_conditional(v, y, float(noise_std), float(eta), gens)

    def _sample_conditional(
        self, v: Tensor, y: Tensor, noise_std: float, eta: float, generator: Generators
    ) -> Tensor:
        v_noisy = v + eta * randn_like(v, generator)
        y_noisy = y + noise_std * self.noise_like(y, generator)
        return self._prox_l2(v_noisy, y_noisy, (eta / noise_std) ** 2)

    def _check_pair(self, x: Tensor, y: Tensor, name: str) -> None:
        self._check_x(x, name)
        self._check_y(y)
        if len(x) != len(y):
            raise ShapeError(
                f"{name} has a batch of {len(x)} images and y of {len(y)}; give one {name} per y"
            )

    def _check_y(self, y: Tensor) -> None:
        """Refuse a measurement of the wrong shape; here: one that is not a batch of images."""
        if y.ndim != 4:
            raise ShapeError(f"y has shape {tuple(y.shape)}, {self!r} makes (B, C, H, W)")


class DecomposableOperator(LinearOperatorBase):
    r"""Linear operator with a known decomposition A = U S Vᵀ, everything in closed form.

    ``V`` may be thin: with orthonormal columns, f(AᵀA) = f(0) + V [f(S²) − f(0)] Vᵀ for any f.
    Subclasses give ``U``, ``U_adjoint``, ``V``, ``V_adjoint`` and ``singular_values``; if the
    decomposition is known only for some arguments, they override ``decomposed``; CG is used
    otherwise.
    """

    @property
    def decomposed(self) -> bool:
        """Whether the decomposition is known for this operator's arguments."""
        return True

    @property
    @abstractmethod
    def singular_values(self) -> Tensor:
        """The diagonal of S, in the shape of the coefficients."""

    @abstractmethod
    def U(self, c: Tensor) -> Tensor:
        """Spectral coefficients to measurement."""

    @abstractmethod
    def U_adjoint(self, y: Tensor) -> Tensor:
        """Measurement to spectral coefficients."""

    @abstractmethod
    def V(self, c: Tensor) -> Tensor:
        """Spectral coefficients to image."""

    @abstractmethod
    def V_adjoint(self, x: Tensor) -> Tensor:
        """Image to spectral coefficients."""

    def _A(self, x: Tensor) -> Tensor:
        return self.U(self._like("singular_values", x) * self.V_adjoint(x))

    def _A_adjoint(self, y: Tensor) -> Tensor:
        return self.V(self._like("singular_values", y) * self.U_adjoint(y))

    def _prox_l2(self, z: Tensor, y: Tensor, gamma: Gamma) -> Tensor:
        """z + V [γS/(1 + γS²) Uᵀ(y − Az)]"""
        if not self.decomposed:
            return super()._prox_l2(z, y, gamma)
        s = self._like("singular_values", z)
        gain = gamma * s / (1 + gamma * s**2)
        return z + self.V(gain * self._residual_coefficients(z, y))

    def _residual_coefficients(self, z: Tensor, y: Tensor) -> Tensor:
        """Uᵀ(y − Az)."""
        return self.U_adjoint(y - self._A(z))

    def _A_dagger(self, y: Tensor, reg: float) -> Tensor:
        """V [S/(S² + reg)] Uᵀ y, with singular values below rounding treated as zero."""
        if not self.decomposed:
            return super()._A_dagger(y, reg)
        s = self._like("singular_values", y)
        floor = float(s.max()) * max(s.shape[-2:]) * torch.finfo(s.dtype).eps
        gain = torch.where(s > floor, s / (s**2 + reg).clamp_min(floor**2), 0)
        return self.V(gain * self.U_adjoint(y))

    def _sample_conditional(
        self, v: Tensor, y: Tensor, noise_std: float, eta: float, generator: Generators
    ) -> Tensor:
        """Mean plus V [(S²/noise_std² + 1/eta²)^(−½) − eta] Vᵀ n + eta n, n standard normal."""
        if not self.decomposed:
            return super()._sample_conditional(v, y, noise_std, eta, generator)
        s = self._like("singular_values", v)
        n = randn_like(v, generator)
        spread = ((s / noise_std) ** 2 + eta**-2) ** -0.5 - eta
        mean = self._prox_l2(v, y, (eta / noise_std) ** 2)
        return mean + self.V(spread * self.V_adjoint(n)) + eta * n


def _tolerance(x: Tensor) -> float:
    return 1e-7 if torch.finfo(x.dtype).bits == 32 else 1e-11
