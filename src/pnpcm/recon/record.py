"""What a restoration gives back: the image, how sure it is, and everything that made it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pnpcm import __version__
from pnpcm.core import Result
from pnpcm.io.files import save_picture, to_picture, write_atomically, write_json
from pnpcm.io.photos import Photo, write_photo
from pnpcm.recon.check import Check
from pnpcm.solvers import PnPCMConfig


@dataclass(frozen=True)
class Restoration:
    """A restored image.

    ``x``: ``(B, C, H, W)`` in [-1, 1]; of several samples their mean. ``sample``: the first one.
    ``std``: per-pixel standard deviation of the samples, None for one. ``check``: the self-check
    of the first image. ``seconds``: time of each stage.
    """

    result: Result
    sample: Tensor
    std: Tensor | None
    check: Check
    config: PnPCMConfig
    source: str
    sigma_y: float
    sigma_source: str
    samples: int
    seed: int
    prior: str
    operator: str
    notes: tuple[str, ...] = ()
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def x(self) -> Tensor:
        return self.result.x

    def to_dict(self) -> dict[str, Any]:
        """All but the pixels, as plain values."""
        return {
            "versions": {"pnpcm": __version__, "torch": torch.__version__},
            "prior": self.prior,
            "operator": self.operator,
            "sigma_y": self.sigma_y,
            "sigma_y_from": self.sigma_source,
            "parameters_from": self.source,
            "solver": self.config.to_dict(),
            "samples": self.samples,
            "seed": self.seed,
            "shape": list(self.x.shape),
            "nfe": self.result.nfe,
            "seconds": {k: round(v, 3) for k, v in self.seconds.items()},
            "check": self.check.to_dict(),
            "notes": list(self.notes),
        }

    def report(self) -> str:
        """A few lines for a person."""
        c = self.check
        lines = [
            f"{self.operator}, prior {self.prior}, {self.config.n_steps} steps, "
            f"{self.result.nfe} network evaluations",
            f"noise: sigma_y = {self.sigma_y:.4g} ({self.sigma_source})",
            f"parameters: {self.source}",
            f"data: {c.verdict} (residual {c.ratio:.2f} × expected)",
            f"prior: {c.fit}"
            + ("" if c.prior_ratio is None else f" ({c.prior_ratio:.2f} × usual)"),
            f"clipped: {100 * c.clipped:.1f} % of values",
            "seconds: " + ", ".join(f"{k} {v:.1f}" for k, v in self.seconds.items()),
        ]
        return "\n".join([*lines, *(f"note: {n}" for n in self.notes)])

    def save(
        self,
        path: str | Path,
        *,
        like: Photo | None = None,
        format: str | None = None,
        record: dict[str, Any] | None = None,
    ) -> list[Path]:
        """Write the picture, for several samples also one sample and the spread, then the record.

        ``like``: the photo whose bit depth, alpha, profile and EXIF are kept. ``record``: more to
        write into ``NAME.result.json``, which comes last and so marks a finished result.
        """
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        written = [path]
        _write(path, self.x[0], like, format)
        if self.std is not None:
            spread = self.std[0].mean(0)
            names = [path.with_name(f"{path.stem}.{part}") for part in ("std.npy", "std.png")]
            sample = path.with_name(f"{path.stem}.sample{path.suffix}")
            _write(sample, self.sample[0], like, format)
            write_atomically(names[0], lambda p: _save_array(p, self.std))
            save_picture(names[1], to_picture(heat(spread)))
            written += [sample, *names]
        content = self.to_dict() | (record or {}) | {"files": [p.name for p in written]}
        target = path.with_name(f"{path.stem}.result.json")
        write_json(target, content)
        return [*written, target]


def heat(values: Tensor) -> Tensor:
    """``(H, W)`` ≥ 0 as a colour picture ``(3, H, W)`` in [-1, 1]: black, red, yellow, white.

    White is the 99.5th percentile.
    """
    flat = values.flatten()
    top = flat.kthvalue(max(1, int(0.995 * flat.numel()))).values.clamp_min(1e-8)
    v = (values / top).clamp(0, 1)
    return torch.stack([(3 * v - k).clamp(0, 1) for k in range(3)]) * 2 - 1


def _write(path: Path, x: Tensor, like: Photo | None, format: str | None) -> None:
    if like is None:
        save_picture(path, to_picture(x))
    else:
        write_photo(path, x, like, format=format)


def _save_array(path: Path, values: Tensor | None) -> None:
    with path.open("wb") as file:
        np.save(file, np.asarray(values, dtype=np.float32))
