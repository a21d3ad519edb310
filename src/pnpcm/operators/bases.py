"""Bases in which a blur is diagonal: Fourier, cosine, and separable singular vectors."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from pnpcm.operators.base import Constants
from pnpcm.transforms import DENSE_SIDE, dct2, idct2, pad


class Basis(Protocol):
    """A = U diag(singular_values) Vᵀ. The coefficients may be complex (half a spectrum)."""

    singular_values: Tensor

    def U(self, c: Tensor) -> Tensor: ...
    def U_adjoint(self, y: Tensor) -> Tensor: ...
    def V(self, c: Tensor) -> Tensor: ...
    def V_adjoint(self, x: Tensor) -> Tensor: ...


class FourierBasis(Constants):
    """Circular boundary: A = F⁻¹ K̂ F, with |K̂| the singular values and the phases in U."""

    def __init__(self, kernel: Tensor, size: tuple[int, int]) -> None:
        super().__init__()
        spectrum = torch.fft.rfft2(embed_kernel(kernel, size))
        self.size = size
        self.singular_values = spectrum.abs()
        self.phase = torch.polar(torch.ones_like(self.singular_values), spectrum.angle())

    def V(self, c: Tensor) -> Tensor:
        x: Tensor = torch.fft.irfft2(c, s=self.size, norm="ortho")
        return x

    def V_adjoint(self, x: Tensor) -> Tensor:
        c: Tensor = torch.fft.rfft2(x, norm="ortho")
        return c

    def U(self, c: Tensor) -> Tensor:
        return self.V(self._like("phase", c) * c)

    def U_adjoint(self, y: Tensor) -> Tensor:
        c = self.V_adjoint(y)
        return c.mul_(self._like("phase", c).conj())


class CosineBasis(Constants):
    """Mirrored boundary and a kernel even in both axes: A = Cᵀ K̂ C with the cosine transform C."""

    def __init__(self, kernel: Tensor, size: tuple[int, int]) -> None:
        super().__init__()
        response = dct2_response(kernel, size)
        self.singular_values = response.abs()
        self.sign = torch.where(response < 0, -1.0, 1.0).double()

    def V(self, c: Tensor) -> Tensor:
        return idct2(c)

    def V_adjoint(self, x: Tensor) -> Tensor:
        return dct2(x)

    def U(self, c: Tensor) -> Tensor:
        return idct2(self._like("sign", c) * c)

    def U_adjoint(self, y: Tensor) -> Tensor:
        return self._like("sign", y) * dct2(y)


class SeparableBasis(Constants):
    """A(x) = B_h x B_wᵀ: singular vectors of the two 1-D factors, S_ij = s_i s_j."""

    def __init__(self, B_h: Tensor, B_w: Tensor, *, cut: float = 0.0) -> None:
        super().__init__()
        self.U_h, s_h, self.V_h = _svd(B_h, cut)
        self.U_w, s_w, self.V_w = _svd(B_w, cut)
        self.singular_values = s_h[:, None] * s_w[None, :]

    def V(self, c: Tensor) -> Tensor:
        return self._like("V_h", c) @ c @ self._like("V_w", c).T

    def V_adjoint(self, x: Tensor) -> Tensor:
        return self._like("V_h", x).T @ x @ self._like("V_w", x)

    def U(self, c: Tensor) -> Tensor:
        return self._like("U_h", c) @ c @ self._like("U_w", c).T

    def U_adjoint(self, y: Tensor) -> Tensor:
        return self._like("U_h", y).T @ y @ self._like("U_w", y)


def _svd(matrix: Tensor, cut: float) -> tuple[Tensor, Tensor, Tensor]:
    symmetric = torch.allclose(matrix, matrix.T, rtol=0, atol=1e-14 * float(matrix.abs().max()))
    if symmetric and len(matrix) > DENSE_SIDE:  # Q Λ Qᵀ takes 0.4 times as long
        values, Q = torch.linalg.eigh(matrix)
        order = values.abs().argsort(descending=True)
        values, V = values[order], Q[:, order].contiguous()
        s = values.abs()
        return V * torch.where(values < 0, -1.0, 1.0), torch.where(s < cut, 0, s), V
    U, s, Vh = torch.linalg.svd(matrix)
    return U, torch.where(s < cut, 0, s), Vh.T.contiguous()


def embed_kernel(kernel: Tensor, size: tuple[int, int]) -> Tensor:
    """The kernel on a zero canvas of ``size`` with its centre (side // 2) at the origin."""
    canvas = kernel.new_zeros(size)
    canvas[: kernel.shape[0], : kernel.shape[1]] = kernel
    return canvas.roll((-(kernel.shape[0] // 2), -(kernel.shape[1] // 2)), (0, 1))


def dct2_response(kernel: Tensor, size: tuple[int, int]) -> Tensor:
    """Response of an even kernel to the cosines of ``size``: Σ k_ij cos(ω_m i) cos(ω_n j)."""
    cosines = []
    for side, n in zip(kernel.shape, size, strict=True):
        omega = torch.pi / n * torch.arange(n, dtype=torch.float64)
        offset = torch.arange(side, dtype=torch.float64) - side // 2
        cosines.append(torch.cos(omega[:, None] * offset))
    return cosines[0] @ kernel.double() @ cosines[1].T


def toeplitz(taps: Tensor, n: int, boundary: str) -> Tensor:
    """Matrix ``(n, n)`` of the convolution with ``taps`` (centre side // 2) and ``boundary``."""
    size = taps.numel()
    before, after = size - 1 - size // 2, size // 2
    windows = pad(torch.eye(n, dtype=taps.dtype)[None], (before, after, 0, 0), boundary)[0]
    return (windows.unfold(1, size, 1) @ taps.flip(0)).T.contiguous()
