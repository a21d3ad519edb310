"""The complex image itself, for further work in numpy."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pnpcm.mri.writers.volume import Volume


def write_npy(volume: Volume, folder: Path) -> list[Path]:
    """``NAME.npy``: complex64 ``(slices, h, w)``, phase included."""
    path = folder / f"{volume.name}.npy"
    image = volume.image.detach().cpu().resolve_conj().resolve_neg().numpy()
    np.save(path, image.astype(np.complex64, copy=False))
    return [path]
