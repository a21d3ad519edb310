"""Linear algebra on batches of images, with one scalar per image."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from pnpcm.core import Generators
from pnpcm.rng import randn_like

Map = Callable[[Tensor], Tensor]

BLOCK = 1 << 20
"""Values per block where large intermediates are avoided; a block fits into a CPU cache."""
TENSION = 0.05
"""Weight of the Laplacian beside its square. 0 to 0.1 fill narrow holes equally well (scratches,
text, 30 and 70 % missing on 8 training crops); without it wide holes overshoot."""


def expand(values: Tensor, x: Tensor) -> Tensor:
    """One number per image ``(B,)`` in a shape that multiplies ``x`` ``(B, …)``."""
    return values.to(x.device).reshape(-1, *[1] * (x.ndim - 1))


def to_complex(x: Tensor) -> Tensor:
    """``(B, 2, H, W)`` (real, imaginary) to complex ``(B, H, W)``; complex images pass.

    ``(B, 2M, H, W)``, the parts of M > 1 images one after the other, to complex ``(B, M, H, W)``.
    """
    if x.is_complex():
        return x
    image = torch.complex(x[:, 0::2], x[:, 1::2])
    return image[:, 0] if image.shape[1] == 1 else image


def to_channels(image: Tensor) -> Tensor:
    """Complex ``(B, H, W)`` to ``(B, 2, H, W)``, complex ``(B, M, H, W)`` to ``(B, 2M, H, W)``."""
    parts = torch.stack([image.real, image.imag], dim=-3)
    return parts if image.ndim == 3 else parts.flatten(1, 2)


def like_form(a: Tensor, b: Tensor) -> Tensor:
    """``a`` in the form of ``b``: two channels (real, imaginary) as complex where ``b`` is."""
    return to_complex(a) if b.is_complex() else a


def inner(a: Tensor, b: Tensor) -> Tensor:
    """Real inner product Re⟨a, b⟩ of each image, ``(B,)``."""
    a, b = (
        (torch.view_as_real(t.resolve_conj()) if t.is_complex() else t).reshape(len(t), -1)
        for t in (a, b)
    )
    parts = zip(torch.split(a, BLOCK, 1), torch.split(b, BLOCK, 1), strict=True)
    return torch.stack([(p * q).sum(1) for p, q in parts]).sum(0)


def norm(a: Tensor) -> Tensor:
    """Euclidean norm of each image, ``(B,)``."""
    value: Tensor = torch.linalg.vector_norm(a.reshape(len(a), -1), dim=1)
    return value


def normal_map(operator: Any) -> Map:
    """AᵀA of a linear operator, by its own ``A_adjoint_A`` if it has one."""
    own: Map | None = getattr(operator, "A_adjoint_A", None)
    return own if own is not None else lambda x: like_form(operator.A_adjoint(operator.A(x)), x)


def cg(
    normal: Map,
    b: Tensor,
    *,
    x_init: Tensor | None = None,
    max_iter: int = 10,
    tol: float = 0.0,
    rank_tol: float = 0.0,
    precondition: Map | None = None,
    stop: Callable[[Tensor], Tensor] | None = None,
) -> Tensor:
    r"""Conjugate gradients for ``normal(x) = b`` with a self-adjoint positive ``normal``.

    Each image has its own step lengths and stops separately, when ‖r‖ ≤ tol ‖b‖ or when its
    residual is at rounding level: a batch gives the results of its single images. ``x_init=None``:
    zero start, which saves one application. For a singular ``normal`` an image also stops before a
    direction whose curvature is below ``rank_tol`` times the largest so far, where rounding errors
    would be amplified. ``stop(x)``: whether each image ``(B,)`` may stop, evaluated before every
    iteration. Hestenes & Stiefel (1952).
    """
    floor = max(tol, 1e-3 * torch.finfo(b.dtype).eps) * norm(b)
    x = torch.zeros_like(b) if x_init is None else x_init.clone()
    r = b.clone() if x_init is None else b - normal(x)
    d = r if precondition is None else precondition(r)
    p = d.clone()
    rd = inner(r, d)
    running = torch.ones_like(rd, dtype=torch.bool)
    largest = torch.zeros_like(rd)
    for _ in range(max_iter):
        if stop is not None:
            running = running & ~stop(x)
        active = running & (norm(r) > floor)
        if not bool(active.any()):
            break
        q = normal(p)
        pq = inner(p, q)
        if rank_tol > 0:
            curvature = pq / inner(p, p).clamp_min(torch.finfo(pq.dtype).tiny)
            largest = torch.maximum(largest, curvature)
            running = running & (curvature > rank_tol * largest)
            active = active & running
        alpha = torch.where(active & (pq > 0), rd / pq.clamp_min(torch.finfo(pq.dtype).tiny), 0)
        x.addcmul_(expand(alpha, p), p)
        r.addcmul_(expand(-alpha, q), q)
        d = r if precondition is None else precondition(r)
        rd_next = inner(r, d)
        beta = torch.where(rd > 0, rd_next / rd.clamp_min(torch.finfo(rd.dtype).tiny), 0)
        p.mul_(expand(beta, p)).add_(d)
        rd = rd_next
    return x


def laplacian(x: Tensor) -> Tensor:
    """L x of images ``(B, C, H, W)`` or planes ``(P, H, W)``: 5 points, mirrored borders."""
    p = F.pad(x, (1, 1, 1, 1), mode="replicate")
    return 4 * x - p[..., :-2, 1:-1] - p[..., 2:, 1:-1] - p[..., 1:-1, :-2] - p[..., 1:-1, 2:]


def smooth_fit(
    normal: Map, b: Tensor, *, weight: float = 0.1, tension: float = TENSION, max_iter: int = 60
) -> Tensor:
    r"""A smooth image that explains the data of a linear operator, ``(B, C, H, W)``, real.

    .. math:: \operatorname{argmin}_x \tfrac12\|Ax - y\|^2
              + \tfrac{\lambda}{2} \langle x, (L^2 + \tau L)\, x\rangle,
              \quad \lambda = \texttt{weight} \cdot \|A\|^2,

    by CG, with ``normal`` AᵀA, ``b`` Aᵀy, L the Laplacian and τ the ``tension``: pixels that A does
    not measure are interpolated, the null space of a blur stays empty.
    """
    same = [torch.Generator().manual_seed(0) for _ in b]  # a batch gives the results of its images
    gain = power_norm(normal, b, generator=same, n_iter=20, tol=0)
    scale = expand(weight * gain.square(), b)

    def regular(x: Tensor) -> Tensor:
        once = laplacian(x)
        return normal(x) + scale * (laplacian(once) + tension * once)

    return cg(regular, b, max_iter=max_iter, tol=1e-4)


def power_norm(
    normal: Map, x: Tensor, *, generator: Generators, n_iter: int = 50, tol: float = 1e-4
) -> Tensor:
    """Largest singular value √λ_max(AᵀA) of each image's operator by power iteration, ``(B,)``.

    Only shape, dtype and device of ``x`` are used. The estimate converges from below.
    """
    v = randn_like(x, generator)
    value = norm(v)
    for _ in range(n_iter):
        v = v / expand(value.clamp_min(torch.finfo(v.dtype).tiny), v)
        v = normal(v)
        value, previous = norm(v), value
        if bool(((value - previous).abs() <= tol * value).all()):
            break
    return value.sqrt()


def jacobian_norm(
    f: Map, x: Tensor, *, generator: Generators, n_iter: int = 50, tol: float = 1e-4
) -> Tensor:
    """Largest singular value of the Jacobian of ``f`` at each image of ``x``, ``(B,)``.

    Power iteration on JᵀJ; ``f`` must be twice differentiable and treat images separately. A lower
    estimate of the Lipschitz constant of ``f``, which is the largest value over all images.
    """
    with torch.inference_mode(False), torch.enable_grad():
        x = x.detach().clone().requires_grad_()
        out = f(x)
        w = torch.zeros_like(out, requires_grad=True)
        (pulled,) = torch.autograd.grad(out, x, w, create_graph=True)  # Jᵀw, linear in w

        def normal(v: Tensor) -> Tensor:
            (pushed,) = torch.autograd.grad(pulled, w, v, retain_graph=True)  # Jv
            (back,) = torch.autograd.grad(out, x, pushed, retain_graph=True)  # Jᵀ(Jv)
            return back

        return power_norm(normal, x, generator=generator, n_iter=n_iter, tol=tol)
