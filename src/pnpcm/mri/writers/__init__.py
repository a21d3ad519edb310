"""Reconstructed volumes as files: one writer per format, each complete or not there.

A writer is a function ``(volume, folder)`` that writes plainly and returns the paths it made;
:func:`write_volume` gives it a new folder and renames what is finished.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path

from pnpcm.errors import ArgumentError
from pnpcm.io.staging import publish, staging, writing
from pnpcm.mri.writers.formats import write_dicom, write_h5, write_nifti, write_npy
from pnpcm.mri.writers.page import write_html
from pnpcm.mri.writers.pictures import write_png
from pnpcm.mri.writers.volume import Volume, need
from pnpcm.names import Table

Writer = Callable[[Volume, Path], list[Path]]

WRITERS: Table[Writer] = Table(
    "output format",
    {
        "h5": write_h5,
        "nifti": write_nifti,
        "dicom": write_dicom,
        "npy": write_npy,
        "png": write_png,
        "html": write_html,
    },
)
FILES = {
    "h5": (".h5",),
    "nifti": (".nii.gz", "_std.nii.gz", ".json"),
    "dicom": ("_dicom",),
    "npy": (".npy",),
    "png": (".png", "_std.png"),
    "html": (".html",),
}
"""Endings of the files (dicom: of the folder) of a format.

Those with std are written only if there is one, ``.json`` only if the protocol is known.
"""
LIBRARIES = {"h5": "h5py", "nifti": "nibabel", "dicom": "pydicom"}
"""What a format needs beyond the core's dependencies."""


def check_formats(formats: Iterable[str]) -> list[str]:
    """The formats without repetition, or an error: unknown name, missing library.

    Worth calling before a long reconstruction.
    """
    if isinstance(formats, str):
        raise ArgumentError(f"formats is {formats!r}, expected a list; write [{formats!r}]")
    names = list(dict.fromkeys(formats))
    if not names:
        raise ArgumentError(f"formats is empty; give at least one of {', '.join(WRITERS)}")
    for name in names:
        WRITERS[name]
        if name in LIBRARIES:
            need(LIBRARIES[name], f"output as {name}")
    return names


def volume_files(name: str, formats: Iterable[str], *, several: bool) -> list[str]:
    """Names of all files that :func:`write_volume` may write; ``several``: with a std."""
    endings = [ending for format in formats for ending in FILES[format]]
    return [name + ending for ending in endings if several or not ending.startswith("_std")]


def write_volume(volume: Volume, folder: str | Path, formats: Iterable[str]) -> list[Path]:
    """Write all formats into ``folder`` and return the paths; an older result is replaced.

    If one of them fails, no file of the new volume remains, and an older one is untouched.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise ArgumentError(f"folder is {folder}, which is not a folder; create it first")
    series = {
        path.name
        for path in folder.glob("*_dicom/")
        if all(re.fullmatch(r"\d{4,}\.dcm", file.name) for file in path.iterdir())
    }
    with staging(folder) as inside:
        return publish(write_formats(volume, inside, formats), folder, own=series)


def write_formats(volume: Volume, folder: Path, formats: Iterable[str]) -> list[Path]:
    """Write all formats into a new folder and return the paths."""
    paths = []
    for name in check_formats(formats):
        with writing(folder / f"{volume.name}{FILES[name][0]}"):
            paths += WRITERS[name](volume, folder)
    return paths


__all__ = [
    "Volume",
    "WRITERS",
    "Writer",
    "check_formats",
    "volume_files",
    "write_formats",
    "write_volume",
]
