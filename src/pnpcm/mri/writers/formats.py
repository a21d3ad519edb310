"""Volumes as data files: HDF5 in fastMRI's layout, NIfTI-1, DICOM, and numpy arrays."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pnpcm import __version__
from pnpcm.errors import ArgumentError
from pnpcm.mri.writers.volume import NO_GEOMETRY, Array, Volume, need, to_array, upright


# HDF5 --------------------------------------------------------------------------------------------
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


UNKNOWN, SCANNER = 0, 1  # codes of the standard's coordinate systems
# NIfTI: the affine puts every voxel at its position in the scanner -------------------------------
LPS_TO_RAS = np.diag([-1.0, -1.0, 1.0, 1.0])


def write_nifti(volume: Volume, folder: Path) -> list[Path]:
    """``NAME.nii.gz``: float32 magnitude with axes (h, w, slices); ``NAME_std.nii.gz`` likewise.

    Voxel (i, j, k) lies where :meth:`Volume.affine` puts row i, column j of slice k, in the
    format's RAS axes: the first two signs of DICOM's LPS flipped. Where the geometry is unknown
    both codes are 0, the stored matrix is diag(voxel) and the description says so; readers then
    use their own default (nibabel: centred, first axis towards the left). ``NAME.json`` contains
    the protocol under the names and in the units of BIDS (times in seconds); the images contain
    the same text as a comment.
    """
    nibabel = need("nibabel", "output as nifti")
    paths = [folder / f"{volume.name}.nii.gz"]
    nibabel.save(_image(nibabel, volume, volume.magnitude(), "magnitude"), paths[0])
    if volume.std is not None:
        paths.append(folder / f"{volume.name}_std.nii.gz")
        nibabel.save(_image(nibabel, volume, to_array(volume.std), "std"), paths[1])
    if text := _bids(volume):
        paths.append(folder / f"{volume.name}.json")
        paths[-1].write_text(text, encoding="utf-8")
    return paths


BIDS = {
    "repetition_time": "RepetitionTime",
    "echo_time": "EchoTime",
    "flip_angle": "FlipAngle",
    "field_strength": "MagneticFieldStrength",
    "manufacturer": "Manufacturer",
    "model": "ManufacturersModelName",
    "study_date": "StudyDate",
    "patient_position": "PatientPosition",
}
"""Words of a protocol and their names in BIDS; those of DICOM differ in ``model`` only."""
SECONDS = ("RepetitionTime", "EchoTime")


def _bids(volume: Volume) -> str:
    """The protocol as JSON text; empty if nothing is known."""
    found = {BIDS[name]: value for name, value in volume.protocol.to_dict().items()}
    for name, value in found.items():
        if name in SECONDS and not isinstance(value, str):
            found[name] = value / 1000
    return json.dumps(found, indent=2, ensure_ascii=False) if found else ""


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
    if protocol := _bids(volume):
        extension = nibabel.nifti1.Nifti1Extension("comment", protocol.encode())
        image.header.extensions.append(extension)
    return image


# numpy -------------------------------------------------------------------------------------------
def write_npy(volume: Volume, folder: Path) -> list[Path]:
    """``NAME.npy``: complex64 ``(slices, h, w)``, phase included."""
    path = folder / f"{volume.name}.npy"
    image = volume.image.detach().cpu().resolve_conj().resolve_neg().numpy()
    np.save(path, image.astype(np.complex64, copy=False))
    return [path]


# DICOM: one MR image per slice, derived, anonymous, at its position in the patient ---------------
LEVELS = 2**16 - 1
EMPTY = (
    "PatientID", "PatientBirthDate", "PatientSex", "StudyDate", "StudyTime", "StudyID",
    "ReferringPhysicianName", "AccessionNumber", "PositionReferenceIndicator", "Manufacturer",
    "ScanOptions", "MRAcquisitionType", "EchoTime", "RepetitionTime", "EchoTrainLength",
)  # fmt: skip
"""Elements that the standard wants present (type 2), empty unless the protocol tells them."""


def write_dicom(volume: Volume, folder: Path) -> list[Path]:
    """``NAME_dicom/0001.dcm`` …: one file per slice; the path returned is the folder.

    Magnitudes are stored as 16-bit integers p with one slope for the volume: value = slope · p,
    off by at most half a slope. Rows and columns are those of :func:`upright`, and the protocol is
    written as far as it is known. All UIDs come from a hash of the content, so the same volume
    written twice is the same series, and another one is not.
    """
    pydicom = need("pydicom", "output as dicom")
    volume = upright(volume)
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
    for name, value in volume.protocol.to_dict().items():
        keyword = "ManufacturerModelName" if name == "model" else BIDS[name]
        known = _text(value) if isinstance(value, str) else _number(pydicom, value)
        setattr(dataset, keyword, known)
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


def _text(value: str) -> str:
    """A text of at most 64 characters without those that separate values."""
    return "".join(c if c.isprintable() and c != "\\" else " " for c in value)[:64].strip()


def _uid(pydicom: Any, seed: str, what: str) -> Any:
    return pydicom.uid.generate_uid(entropy_srcs=[seed, what])


def _digest(volume: Volume, magnitude: Array) -> str:
    """Hash of all that the files are made of."""
    facts = f"{volume.name} {volume.geometry} {volume.protocol} {volume.shape} {__version__}"
    return hashlib.sha256(facts.encode() + magnitude.tobytes()).hexdigest()
