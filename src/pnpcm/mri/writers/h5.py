"""HDF5 as fastMRI's tools read it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pnpcm.mri.writers.volume import Volume, need, to_array


def write_h5(volume: Volume, folder: Path) -> list[Path]:
    """``NAME.h5``: the layout of fastMRI's submissions, with what we know beside it.

    Dataset ``reconstruction``: float32 magnitude ``(slices, h, w)``; ``std`` likewise, if there.
    Attributes of the file: ``max`` and ``norm`` (largest value and Euclidean norm of the
    reconstruction, as fastMRI's own files have of their reference), ``pnpcm``: the record as JSON.
    """
    h5py = need("h5py", "output as h5")
    path, magnitude = folder / f"{volume.name}.h5", volume.magnitude()
    with h5py.File(path, "w") as file:
        file.create_dataset("reconstruction", data=magnitude)
        if volume.std is not None:
            file.create_dataset("std", data=to_array(volume.std))
        file.attrs["max"] = float(magnitude.max())
        file.attrs["norm"] = float(np.linalg.norm(magnitude.astype(np.float64)))
        file.attrs["pnpcm"] = volume.record_json()
    return [path]
