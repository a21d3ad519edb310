"""Coils seen as a vector: noise made white, many coils mixed into few; sets of maps combined.

Both are one matrix M over the coils of every k-space sample, and so of every pixel:

    y'_c = Σ_d M_cd y_d,    A' = M A,    noise covariance Ψ' = M Ψ Mᴴ.

Coil maps have to be estimated after it, from mixed data.
"""

from __future__ import annotations

import torch
from torch import Tensor

from pnpcm.errors import ArgumentError, ShapeError


def whitening(noise: Tensor) -> Tensor:
    """W ``(coils, coils)`` with W Ψ Wᴴ = 2·I, from noise-only samples ``(coils, n)``.

    Ψ = 1/(n−1) Σ (η − η̄)(η − η̄)ᴴ. Complex variance 2 is variance 1 in the real and 1 in the
    imaginary part, what ``noise_std = 1`` means to the operators. W = √2 L⁻¹ with the Cholesky
    factor Ψ = L Lᴴ, lower triangular: coil c is mixed with coils before it only.
    """
    if noise.ndim != 2 or not noise.is_complex() or 0 in noise.shape:
        raise ShapeError(
            f"noise is {noise.dtype} of shape {tuple(noise.shape)}, expected complex "
            "(coils, samples); flatten all axes but the coils"
        )
    coils, n = noise.shape
    if n <= coils:
        raise ArgumentError(
            f"noise has {n} samples for {coils} coils, but their covariance needs more than "
            f"{coils}; give a longer noise measurement or leave the noise correlated"
        )
    if not bool(torch.isfinite(noise).all()):
        raise ArgumentError(
            "noise holds NaN or infinity, expected measured samples; drop the bad ones"
        )
    centred = noise.to(torch.complex128)
    centred = centred - centred.mean(-1, keepdim=True)
    scale = centred.abs().square().mean(-1).sqrt()
    dead = (scale == 0).nonzero().flatten().tolist()
    if dead:
        raise ArgumentError(
            f"noise of coil {dead[0]} does not vary, expected every coil to have noise; "
            "leave that coil out of noise and k-space"
        )
    centred = centred / scale[:, None]  # coils may differ by orders of magnitude
    factor, failed = torch.linalg.cholesky_ex(centred @ centred.mH / (n - 1))
    if int(failed) or float(factor.diagonal().real.min()) < 1e-6:
        raise ArgumentError(
            f"noise of {coils} coils is linearly dependent, so that it cannot be made white; "
            "remove duplicated coils or apply compression first"
        )
    inverse: Tensor = torch.linalg.solve_triangular(
        factor, torch.eye(coils, dtype=factor.dtype, device=factor.device), upper=False
    )
    return (2**0.5 * inverse / scale).to(torch.complex64)


def compression(kspace: Tensor, n_coils: int) -> Tensor:
    """Orthonormal rows ``(n_coils, coils)`` that keep the most energy of ``kspace``.

    They are eigenvectors of the coil covariance Σ y yᴴ over all samples of ``(…, coils, H, W)``,
    strongest first, conjugated. White noise stays white; give whitened k-space if there is any.
    """
    if kspace.ndim < 3 or not kspace.is_complex() or 0 in kspace.shape:
        raise ShapeError(
            f"kspace is {kspace.dtype} of shape {tuple(kspace.shape)}, expected complex "
            "(…, coils, H, W)"
        )
    coils = kspace.shape[-3]
    if not 1 <= n_coils <= coils:
        raise ArgumentError(
            f"n_coils is {n_coils}, but kspace has {coils} coils; give a number from 1 to {coils}"
        )
    largest = float(kspace.abs().max())
    if not 0 < largest < float("inf"):
        raise ArgumentError(
            f"kspace has largest magnitude {largest}, expected finite values that are not all "
            "zero; check where the scan was read"
        )
    y = (kspace.movedim(-3, 0).flatten(1) / largest).to(torch.complex128)
    _, vectors = torch.linalg.eigh(y @ y.mH)
    strongest: Tensor = vectors.flip(-1)[:, :n_coils]
    return strongest.mH.to(torch.complex64)


def mix(kspace: Tensor, matrix: Tensor) -> Tensor:
    """y'_c = Σ_d M_cd y_d over the coils of ``(…, coils, H, W)``: maps and images alike."""
    if kspace.ndim < 3 or matrix.ndim != 2 or kspace.shape[-3] != matrix.shape[1]:
        raise ShapeError(
            f"kspace of shape {tuple(kspace.shape)} does not fit a matrix of shape "
            f"{tuple(matrix.shape)}; expected (…, coils, H, W) and (any, coils)"
        )
    return torch.einsum("cd,...dhw->...chw", matrix.to(kspace), kspace)


def combine_sets(images: Tensor) -> Tensor:
    """Complex ``(B, M, H, W)``, one image per set of coil maps, as one ``(B, H, W)``.

    Magnitude √Σ_m |x_m|², phase that of the first set. Maps of different sets are orthogonal, so
    that this is the root-sum-of-squares over coils. ``(B, H, W)``, one set, passes.
    """
    if images.ndim == 3:
        return images
    magnitude: Tensor = torch.linalg.vector_norm(images, dim=1)
    return magnitude * phase_factor(images[:, 0])


def phase_factor(values: Tensor) -> Tensor:
    """exp(i arg v) of complex values; 1 where they are 0."""
    return torch.where(values == 0, torch.ones_like(values), values.sgn())
