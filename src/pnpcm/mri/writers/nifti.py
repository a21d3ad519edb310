"""NIfTI-1 with the affine that puts every voxel at its place in the scanner."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from pnpcm import __version__
from pnpcm.mri.writers.volume import NO_GEOMETRY, Array, Volume, need, to_array

UNKNOWN, SCANNER = 0, 1  # codes of the standard's coordinate systems
LPS_TO_RAS = np.diag([-1.0, -1.0, 1.0, 1.0])


def write_nifti(volume: Volume, folder: Path) -> list[Path]:
    """``NAME.nii.gz``: float32 magnitude with axes (h, w, slices); ``NAME_std.nii.gz`` likewise.

    Voxel (i, j, k) lies where :meth:`Volume.affine` puts row i, column j of slice k, in the
    format's RAS axes: the first two signs of DICOM's LPS flipped. Where the geometry is unknown
    both codes are 0, the stored matrix is diag(voxel) and the description says so; readers then
    use their own default (nibabel: centred, first axis towards the left).
    """
    nibabel = need("nibabel", "output as nifti")
    paths = [folder / f"{volume.name}.nii.gz"]
    nibabel.save(_image(nibabel, volume, volume.magnitude(), "magnitude"), paths[0])
    if volume.std is not None:
        paths.append(folder / f"{volume.name}_std.nii.gz")
        nibabel.save(_image(nibabel, volume, to_array(volume.std), "std"), paths[1])
    return paths


def _image(nibabel: Any, volume: Volume, values: Array, what: str) -> Any:
    known = volume.geometry.known
    affine = LPS_TO_RAS @ volume.affine() if known else np.diag([*volume.geometry.voxel, 1.0])
    image = nibabel.Nifti1Image(np.ascontiguousarray(values.transpose(1, 2, 0)), affine)
    code = SCANNER if known else UNKNOWN
    image.set_qform(affine, code=code)
    image.set_sform(affine, code=code)
    image.header.set_xyzt_units("mm")
    image.header.set_dim_info(freq=0, phase=1, slice=2)
    text = f"pnpcm {__version__} {what}" if known else f"{NO_GEOMETRY}: unit affine"
    image.header["descrip"] = text.encode()[:79]
    return image
