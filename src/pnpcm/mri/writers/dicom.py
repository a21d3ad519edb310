"""DICOM: one MR image per slice, derived, anonymous, at its place in the patient."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pnpcm import __version__
from pnpcm.errors import ArgumentError
from pnpcm.mri.writers.volume import NO_GEOMETRY, Array, Volume, need

LEVELS = 2**16 - 1
EMPTY = (
    "PatientID", "PatientBirthDate", "PatientSex", "StudyDate", "StudyTime", "StudyID",
    "ReferringPhysicianName", "AccessionNumber", "PositionReferenceIndicator", "Manufacturer",
    "ScanOptions", "MRAcquisitionType", "EchoTime", "RepetitionTime", "EchoTrainLength",
)  # fmt: skip
"""Elements that the standard wants present (type 2) and about which we know nothing."""


def write_dicom(volume: Volume, folder: Path) -> list[Path]:
    """``NAME_dicom/0001.dcm`` …: one file per slice; the path returned is the folder.

    Magnitudes are stored as 16-bit integers p with one slope for the volume: value = slope · p,
    off by at most half a slope. All UIDs come from a hash of the content, so the same volume
    written twice is the same series, and another one is not.
    """
    pydicom = need("pydicom", "output as dicom")
    magnitude = volume.magnitude()
    wrong = int((~np.isfinite(magnitude)).sum())
    if wrong:
        raise ArgumentError(
            f"image has {wrong} values that are not finite, which DICOM's integers cannot hold; "
            "write it as npy or nifti"
        )
    target = folder / f"{volume.name}_dicom"
    target.mkdir()
    affine, seed = volume.affine(), _digest(volume, magnitude)
    slope = _number(pydicom, float(magnitude.max()) / LEVELS or 1.0)
    written = float(str(slope))  # 16 characters of it: pixels must fit the slope in the file
    top = _number(pydicom, float(np.percentile(magnitude, 99.8)) or 1.0)
    for k, values in enumerate(magnitude):
        dataset = _shared(pydicom, volume, seed)
        _place(pydicom, dataset, affine, k)
        dataset.InstanceNumber = k + 1
        dataset.SOPInstanceUID = _uid(pydicom, seed, f"slice {k}")
        dataset.file_meta.MediaStorageSOPInstanceUID = dataset.SOPInstanceUID
        dataset.RescaleSlope, dataset.RescaleIntercept, dataset.RescaleType = slope, 0, "US"
        dataset.WindowCenter, dataset.WindowWidth = _number(pydicom, float(top) / 2), top
        pixels = np.rint(values.astype(np.float64) / written).clip(0, LEVELS)
        dataset.Rows, dataset.Columns = pixels.shape
        dataset.PixelData = pixels.astype("<u2").tobytes()
        dataset.save_as(target / f"{k + 1:04d}.dcm", enforce_file_format=True)
    return [target]


def _shared(pydicom: Any, volume: Volume, seed: str) -> Any:
    """What all slices say."""
    dataset = pydicom.Dataset()
    dataset.file_meta = pydicom.dataset.FileMetaDataset()
    dataset.file_meta.TransferSyntaxUID = pydicom.uid.ExplicitVRLittleEndian
    dataset.file_meta.MediaStorageSOPClassUID = pydicom.uid.MRImageStorage
    dataset.SpecificCharacterSet = "ISO_IR 192"
    dataset.SOPClassUID = pydicom.uid.MRImageStorage
    for key in EMPTY:
        setattr(dataset, key, None)
    dataset.PatientName = "Anonymous"
    dataset.Modality = "MR"
    dataset.ImageType = ["DERIVED", "PRIMARY", "OTHER"]
    dataset.ScanningSequence, dataset.SequenceVariant = "RM", "NONE"  # research mode
    dataset.SeriesNumber = 1
    dataset.SeriesDescription = volume.name[:64]
    dataset.StudyInstanceUID = _uid(pydicom, seed, "study")
    dataset.SeriesInstanceUID = _uid(pydicom, seed, "series")
    dataset.FrameOfReferenceUID = _uid(pydicom, seed, "frame of reference")
    dataset.SoftwareVersions = f"pnpcm {__version__}"
    dataset.DerivationDescription = (
        f"Magnitude reconstructed from raw k-space by pnpcm {__version__}, "
        "scaled to 16 bits. Not for diagnostic use."
    )
    if not volume.geometry.known:
        v = " x ".join(f"{length:g}" for length in volume.geometry.voxel)
        dataset.ImageComments = f"{NO_GEOMETRY}: identity orientation, voxels of {v} mm"
    dataset.SamplesPerPixel, dataset.PhotometricInterpretation = 1, "MONOCHROME2"
    dataset.BitsAllocated, dataset.BitsStored, dataset.HighBit = 16, 16, 15
    dataset.PixelRepresentation = 0
    return dataset


def _place(pydicom: Any, dataset: Any, affine: NDArray[np.float64], k: int) -> None:
    """Position of the first pixel, direction of growing column index, then of growing row index."""
    lengths = np.linalg.norm(affine[:3, :3], axis=0)
    rows, columns, _ = (affine[:3, :3] / lengths).T
    corner = affine @ [0, 0, k, 1]
    thickness = _number(pydicom, lengths[2])
    dataset.ImagePositionPatient = [_number(pydicom, x) for x in corner[:3]]
    dataset.ImageOrientationPatient = [_number(pydicom, x) for x in (*columns, *rows)]
    dataset.PixelSpacing = [_number(pydicom, x) for x in lengths[:2]]
    dataset.SliceThickness = dataset.SpacingBetweenSlices = thickness


def _number(pydicom: Any, value: float) -> Any:
    """A decimal string of at most 16 characters."""
    return pydicom.valuerep.DSfloat(float(value), auto_format=True)


def _uid(pydicom: Any, seed: str, what: str) -> Any:
    return pydicom.uid.generate_uid(entropy_srcs=[seed, what])


def _digest(volume: Volume, magnitude: Array) -> str:
    """Hash of all that the files are made of."""
    facts = f"{volume.name} {volume.geometry} {volume.shape} {__version__}"
    return hashlib.sha256(facts.encode() + magnitude.tobytes()).hexdigest()
