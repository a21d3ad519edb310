"""Volumes as files, read back by other libraries and compared with numbers computed by hand."""

import base64
import hashlib
import json
import math
import sys
from dataclasses import replace
from html.parser import HTMLParser
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from pnpcm import __version__
from pnpcm.errors import ArgumentError, MissingExtraError, ShapeError, UnknownNameError
from pnpcm.mri.scan import Geometry, Protocol
from pnpcm.mri.writers import WRITERS, Volume, check_formats, volume_files, write_volume
from pnpcm.mri.writers.pictures import evenly, palette, shade, window
from pnpcm.mri.writers.volume import upright

C, S = math.cos(math.radians(30)), math.sin(math.radians(30))
OBLIQUE = Geometry(
    voxel=(0.7, 0.9, 4.0),
    position=(12.5, -33.25, 101.0),
    readout=(0.0, C, S),
    phase=(1.0, 0.0, 0.0),
    slice=(0.0, -S, C),
    known=True,
)
RECORD = {
    "input": "<script>alert('ü')</script>",
    "configuration": {"solver": "pnp-cm", "rho": [1.0, 2.5], "mask": {"kind": "file"}},
    "scores": {"fastmri": {"psnr": 34.123456, "ssim": 0.9}, "per slice": {"psnr": 31.5}},
    "timings": {"read": 0.25, "reconstruct": 12.0},
}
NEEDS = {"h5": "h5py", "nifti": "nibabel", "dicom": "pydicom"}


def volume(geometry: Geometry = OBLIQUE, **changes: Any) -> Volume:
    """Three slices of 6 × 5 pixels, with small values as in raw data."""
    generator = torch.Generator().manual_seed(0)
    image = 1e-4 * torch.randn(3, 6, 5, dtype=torch.complex64, generator=generator)
    std = 1e-5 * torch.rand(3, 6, 5, generator=generator)
    mask = torch.tensor([True, False, True, True, False, False, True, False])
    made = Volume(image, mask, "knee.7", std=std, geometry=geometry, record=RECORD)
    return replace(made, **changes)


def by_hand(i: float, j: float, k: float) -> np.ndarray:
    """LPS millimetres of row i, column j, slice k of the volume above, with OBLIQUE."""
    h, w, s = 0.7 * (i - 3), 0.9 * (j - 2), 4.0 * (k - 1)
    return np.array([12.5 + w, -33.25 + C * h - S * s, 101.0 + S * h + C * s])


CORNERS = [(i, j, k) for i in (0, 5) for j in (0, 4) for k in (0, 2)]


def test_h5_is_exact(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    v = volume()
    assert write_volume(v, tmp_path, ["h5"]) == [tmp_path / "knee.7.h5"]
    with h5py.File(tmp_path / "knee.7.h5") as file:
        found = file["reconstruction"][:]
        assert found.dtype == np.float32
        assert np.array_equal(found, v.image.abs().numpy())
        assert np.array_equal(file["std"][:], v.std.numpy())
        assert file.attrs["max"] == found.max()
        assert file.attrs["norm"] == pytest.approx(math.sqrt((found.astype(float) ** 2).sum()))
        assert json.loads(file.attrs["pnpcm"]) == RECORD


def test_h5_holds_a_record_of_a_megabyte_and_no_std_that_is_not_there(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    record = {"notes": "n" * 1_000_000}
    write_volume(volume(std=None, record=record), tmp_path, ["h5"])
    with h5py.File(tmp_path / "knee.7.h5") as file:
        assert list(file) == ["reconstruction"]
        assert json.loads(file.attrs["pnpcm"]) == record


def test_nifti_puts_every_voxel_at_its_place(tmp_path: Path) -> None:
    nibabel = pytest.importorskip("nibabel")
    v = volume()
    paths = write_volume(v, tmp_path, ["nifti"])
    assert [p.name for p in paths] == ["knee.7.nii.gz", "knee.7_std.nii.gz"]
    for path, values in zip(paths, (v.image.abs(), v.std), strict=True):
        image = nibabel.load(path)
        assert image.get_data_dtype() == np.float32
        assert np.array_equal(np.asarray(image.dataobj).transpose(2, 0, 1), values.numpy())
        assert image.header.get_zooms() == pytest.approx((0.7, 0.9, 4.0))
        assert image.header.get_xyzt_units()[0] == "mm"
        assert image.header.get_dim_info() == (0, 1, 2)
        assert image.header["sform_code"] == image.header["qform_code"] == 1
        for matrix in (image.affine, image.get_sform(), image.get_qform()):
            for i, j, k in [*CORNERS, (3, 2, 1)]:
                x, y, z = by_hand(i, j, k)
                assert matrix @ [i, j, k, 1] == pytest.approx([-x, -y, z, 1], abs=1e-4)
    centre = nibabel.load(paths[0]).affine @ [6 // 2, 5 // 2, (3 - 1) / 2, 1]
    assert centre[:3] == pytest.approx([-12.5, 33.25, 101.0], abs=1e-4)


def test_the_centre_lies_between_an_even_number_of_slices() -> None:
    affine = volume(image=torch.ones(4, 6, 5, dtype=torch.complex64), std=None).affine()
    assert affine @ [3, 2, 1.5, 1] == pytest.approx([12.5, -33.25, 101.0, 1])


def test_nifti_without_geometry_claims_none(tmp_path: Path) -> None:
    nibabel = pytest.importorskip("nibabel")
    (path, _) = write_volume(volume(Geometry()), tmp_path, ["nifti"])
    header = nibabel.load(path).header
    assert header["sform_code"] == header["qform_code"] == 0
    assert np.array_equal(header.get_sform(), np.eye(4))
    assert header.get_zooms() == (1, 1, 1)
    assert bytes(header["descrip"].item()) == b"no geometry in the input: unit affine"


def test_dicom_agrees_with_nifti_and_the_numbers(tmp_path: Path) -> None:
    pydicom, nibabel = pytest.importorskip("pydicom"), pytest.importorskip("nibabel")
    v = volume()
    folder, nifti, _ = write_volume(v, tmp_path, ["dicom", "nifti"])
    assert folder == tmp_path / "knee.7_dicom"
    affine, truth = nibabel.load(nifti).affine, v.image.abs().numpy()
    files = [pydicom.dcmread(path) for path in sorted(folder.iterdir())]
    assert [f.InstanceNumber for f in files] == [1, 2, 3]
    for k, file in enumerate(files):
        slope = float(file.RescaleSlope)
        values = file.pixel_array * slope + float(file.RescaleIntercept)
        assert abs(values - truth[k]).max() <= slope / 2 * (1 + 1e-6)
        orientation = np.array(file.ImageOrientationPatient, dtype=float)
        spacing = np.array(file.PixelSpacing, dtype=float)
        for i in (0, 5):
            for j in (0, 4):  # equation C.7.6.2.1-1 of the standard
                place = np.array(file.ImagePositionPatient, dtype=float)
                place += orientation[:3] * spacing[1] * j + orientation[3:] * spacing[0] * i
                assert place == pytest.approx(by_hand(i, j, k), abs=1e-9)
                x, y, z, _ = affine @ [i, j, k, 1]
                assert place == pytest.approx([-x, -y, z], abs=1e-4)
        assert (file.SliceThickness, file.SpacingBetweenSlices) == (4, 4)
        assert "ImageComments" not in file
    assert max(int(f.pixel_array.max()) for f in files) == 65535


def test_dicom_is_a_derived_anonymous_series(tmp_path: Path) -> None:
    pydicom = pytest.importorskip("pydicom")
    (folder,) = write_volume(volume(), tmp_path, ["dicom"])
    files = [pydicom.dcmread(path) for path in sorted(folder.iterdir())]
    for key in ("StudyInstanceUID", "SeriesInstanceUID", "FrameOfReferenceUID"):
        assert len({str(f[key].value) for f in files}) == 1
        assert files[0][key].value.is_valid
    assert len({f.SOPInstanceUID for f in files}) == 3
    first = files[0]
    assert first.SOPClassUID == first.file_meta.MediaStorageSOPClassUID
    assert first.SOPClassUID.name == "MR Image Storage"
    assert list(first.ImageType[:2]) == ["DERIVED", "PRIMARY"]
    assert (first.PatientName, first.PatientID) == ("Anonymous", "")
    assert f"pnpcm {__version__}" in first.DerivationDescription
    assert first.PhotometricInterpretation == "MONOCHROME2"


def test_the_same_volume_twice_is_the_same_bytes_and_another_is_not(tmp_path: Path) -> None:
    for library in NEEDS.values():
        pytest.importorskip(library)

    def hashes(v: Volume) -> dict[str, str]:
        paths = write_volume(v, tmp_path, list(WRITERS))
        files = [f for p in paths for f in (sorted(p.iterdir()) if p.is_dir() else [p])]
        return {f"{f.parent.name}/{f.name}": hashlib.sha256(f.read_bytes()).hexdigest()
                for f in files}  # fmt: skip

    first = hashes(volume())
    assert first == hashes(volume())
    other = hashes(volume(geometry=replace(OBLIQUE, position=(0.0, 0.0, 0.0))))
    assert other["knee.7_dicom/0001.dcm"] != first["knee.7_dicom/0001.dcm"]
    pydicom = pytest.importorskip("pydicom")
    moved = pydicom.dcmread(tmp_path / "knee.7_dicom" / "0001.dcm").SOPInstanceUID
    hashes(volume())
    assert moved != pydicom.dcmread(tmp_path / "knee.7_dicom" / "0001.dcm").SOPInstanceUID


def test_dicom_without_geometry_says_so(tmp_path: Path) -> None:
    pydicom = pytest.importorskip("pydicom")
    (folder,) = write_volume(volume(Geometry()), tmp_path, ["dicom"])
    file = pydicom.dcmread(folder / "0001.dcm")
    assert file.ImageOrientationPatient == [1, 0, 0, 0, 1, 0]
    assert file.ImagePositionPatient == [-2, -3, -1]
    assert file.ImageComments.startswith("no geometry in the input: identity orientation")


def test_dicom_of_nothing_and_of_what_it_cannot_hold(tmp_path: Path) -> None:
    pydicom = pytest.importorskip("pydicom")
    black = torch.zeros(3, 6, 5, dtype=torch.complex64)
    (folder,) = write_volume(volume(image=black), tmp_path, ["dicom"])
    assert not pydicom.dcmread(folder / "0002.dcm").pixel_array.any()
    black[1, 2, 3] = math.nan
    with pytest.raises(ArgumentError, match=r"1 values that are not finite.*npy or nifti"):
        write_volume(volume(image=black, name="nan"), tmp_path, ["dicom"])
    assert sorted(p.name for p in tmp_path.iterdir()) == ["knee.7_dicom"]


PROTOCOL = Protocol(2300.0, 2.98, 9.0, 2.89362, "SIEMENS", "Prisma_fit", "20210622", "HFS")


def test_dicom_carries_the_protocol(tmp_path: Path) -> None:
    pydicom = pytest.importorskip("pydicom")
    (folder,) = write_volume(volume(protocol=PROTOCOL), tmp_path, ["dicom"])
    for path in folder.iterdir():
        file = pydicom.dcmread(path)
        assert (file.RepetitionTime, file.EchoTime, file.FlipAngle) == (2300, 2.98, 9)
        assert file.MagneticFieldStrength == 2.89362
        assert (file.Manufacturer, file.ManufacturerModelName) == ("SIEMENS", "Prisma_fit")
        assert (file.StudyDate, file.PatientPosition) == ("20210622", "HFS")
    strange = Protocol(flip_angle=9.0, model="a\\b\n" + 80 * "c")
    (folder,) = write_volume(volume(protocol=strange), tmp_path, ["dicom"])
    file = pydicom.dcmread(folder / "0001.dcm")
    assert (file.RepetitionTime, file.EchoTime, file.StudyDate) == (None, None, "")  # type 2
    assert "MagneticFieldStrength" not in file
    assert file.FlipAngle == 9
    assert file.ManufacturerModelName == "a b " + 60 * "c"


def test_nifti_carries_the_protocol_in_the_words_of_bids(tmp_path: Path) -> None:
    nibabel = pytest.importorskip("nibabel")
    paths = write_volume(volume(protocol=PROTOCOL), tmp_path, ["nifti"])
    assert [p.name for p in paths] == ["knee.7.nii.gz", "knee.7_std.nii.gz", "knee.7.json"]
    expected = {
        "RepetitionTime": 2.3,
        "EchoTime": 0.00298,
        "FlipAngle": 9.0,
        "MagneticFieldStrength": 2.89362,
        "Manufacturer": "SIEMENS",
        "ManufacturersModelName": "Prisma_fit",
        "StudyDate": "20210622",
        "PatientPosition": "HFS",
    }
    assert json.loads(paths[2].read_text()) == pytest.approx(expected)
    for path in paths[:2]:
        image = nibabel.load(path)
        (extension,) = image.header.extensions
        assert extension.get_code() == 6  # comment
        assert json.loads(extension.get_content()) == pytest.approx(expected)
        assert np.asarray(image.dataobj).shape == (6, 5, 3)  # an extension moves the data


VIEWS = {  # rows and columns of the array, normal; down and right on the screen, by hand
    "axial as it is": ((0, 1, 0), (1, 0, 0), (0, 0, 1), "PL"),
    "axial of Siemens": ((1, 0, 0), (0, -1, 0), (0, 0, 1), "PL"),
    "axial from the head": ((-1, 0, 0), (0, 1, 0), (0, 0, -1), "PL"),
    "coronal": ((0, 0, 1), (-1, 0, 0), (0, 1, 0), "FL"),
    "coronal, turned": ((1, 0, 0), (0, 0, 1), (0, -1, 0), "FL"),
    "sagittal": ((0, -1, 0), (0, 0, 1), (1, 0, 0), "FP"),
    "oblique": ((0.6, 0, 0.8), (0, 1, 0), (-0.8, 0, 0.6), "FP"),
}
SIDES = {"P": (0, 1, 0), "L": (1, 0, 0), "F": (0, 0, -1)}


@pytest.mark.parametrize("view", VIEWS)
def test_an_upright_volume_looks_as_usual_and_stays_in_place(view: str) -> None:
    rows, columns, normal, sides = VIEWS[view]
    geometry = replace(OBLIQUE, readout=rows, phase=columns, slice=normal)
    before = volume(geometry, reference=torch.rand(3, 6, 5))
    after = upright(before)
    axes = after.affine()[:3, :2] / np.linalg.norm(after.affine()[:3, :2], axis=0)
    for axis, side in zip(axes.T, sides, strict=True):
        assert axis @ np.array(SIDES[side]) >= 0.6
    inverse = np.linalg.inv(before.affine())
    slices, h, w = after.shape
    for k in range(slices):
        for i in range(h):
            for j in range(w):  # the same values at the same millimetres
                p, q, r, _ = (inverse @ after.affine() @ [i, j, k, 1]).round(6)
                place = (int(r), int(p), int(q))
                assert (float(p), float(q), float(r)) == (place[1], place[2], place[0])
                assert after.image[k, i, j] == before.image[place]
                assert after.std[k, i, j] == before.std[place]
                assert after.reference[k, i, j] == before.reference[place]


def test_an_unknown_orientation_is_left_alone() -> None:
    before = volume(Geometry())
    assert upright(before) is before


def test_pictures_and_dicom_are_upright(tmp_path: Path) -> None:
    """A bright corner at the right front of the patient is at the upper left."""
    pydicom = pytest.importorskip("pydicom")
    image = torch.zeros(1, 64, 64, dtype=torch.complex64)
    image[0, :8, -8:] = 1  # rows to the left, columns to the front
    geometry = replace(OBLIQUE, readout=(1, 0, 0), phase=(0, -1, 0), slice=(0, 0, 1))
    v = volume(replace(geometry, voxel=(1, 1, 1)), image=image, std=None)
    picture, folder = write_volume(v, tmp_path, ["png", "dicom"])
    file = pydicom.dcmread(folder / "0001.dcm")
    assert file.ImageOrientationPatient == [1, 0, 0, 0, 1, 0]
    bright = np.zeros((64, 64), dtype=bool)
    bright[:8, :8] = True
    assert np.array_equal(file.pixel_array > 0, bright)
    with Image.open(picture) as shown:
        assert shown.getpixel((20, 24 + 20)) == (255, 255, 255)
        assert shown.getpixel((230, 24 + 230)) == (0, 0, 0)


def test_npy_keeps_the_phase(tmp_path: Path) -> None:
    v = volume()
    (path,) = write_volume(replace(v, image=v.image.conj()), tmp_path, ["npy"])
    found = np.load(path)
    assert found.dtype == np.complex64
    assert np.array_equal(found, v.image.numpy().conj())


def test_pictures_show_the_slices_in_order(tmp_path: Path) -> None:
    ramp = torch.arange(4.0)[:, None, None].expand(4, 64, 64) / 3
    v = volume(Geometry(), image=ramp.to(torch.complex64), std=ramp)
    paths = write_volume(v, tmp_path, ["png"])
    assert [p.name for p in paths] == ["knee.7.png", "knee.7_std.png"]
    with Image.open(paths[0]) as grey, Image.open(paths[1]) as colour:
        assert grey.size == colour.size == (2 * 256 + 3, 24 + 2 * 256 + 3)
        centres = [(128, 152), (387, 152), (128, 411), (387, 411)]
        assert [grey.getpixel(c) for c in centres] == [(n, n, n) for n in (0, 85, 170, 255)]
        assert colour.getpixel(centres[0]) == (0, 0, 4)
        assert colour.getpixel(centres[3]) == (252, 255, 164)


def test_windows_choices_and_colours() -> None:
    values = np.arange(1001, dtype=np.float32)
    assert window(values) == pytest.approx(998)
    assert window(np.zeros((2, 2), dtype=np.float32)) == 1
    assert window(np.array([math.nan, 2.0, 2.0], dtype=np.float32)) == 2
    pixels = np.asarray(shade(np.array([[math.nan, -1.0, 0.5, 9.0]], dtype=np.float32), 1.0))
    assert pixels.tolist() == [[0, 0, 128, 255]]
    assert evenly(3, 8) == [0, 1, 2]
    assert evenly(100, 8)[0] == 0
    assert evenly(100, 8)[-1] == 99
    assert len(set(evenly(100, 36))) == 36
    inferno = pytest.importorskip("matplotlib").colormaps["inferno"]
    assert abs(palette() / 255 - inferno(np.arange(256))[:, :3]).max() < 7 / 255


def test_tall_voxels_make_tall_pictures(tmp_path: Path) -> None:
    v = volume(Geometry(voxel=(2.0, 1.0, 1.0)), image=torch.ones(1, 50, 50) + 0j, std=None)
    (path,) = write_volume(v, tmp_path, ["png"])
    with Image.open(path) as picture:
        assert picture.height == 24 + 256


class Reader(HTMLParser):
    """Collects text, pictures and external references of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.pictures: dict[str, Image.Image] = {}
        self.text: list[str] = []
        self.tags: set[str] = set()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        given = dict(attrs)
        assert "href" not in given
        if tag == "img":
            head, data = str(given["src"]).split(",")
            assert head == "data:image/png;base64"
            self.pictures[str(given["alt"])] = Image.open(BytesIO(base64.b64decode(data)))
        if tag not in ("img", "meta"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style" and data.strip():
            self.text.append(data.strip())


def read_page(path: Path) -> Reader:
    reader = Reader()
    reader.feed(path.read_text(encoding="utf-8"))
    assert reader.open == []
    assert reader.tags.isdisjoint({"script", "link", "iframe", "a"})
    return reader


def test_the_page_tells_all_and_loads_nothing(tmp_path: Path) -> None:
    reference = torch.ones(20, 32, 32)
    image = (reference + 0.1).to(torch.complex64)
    v = volume(Geometry(), image=image, std=0.1 * reference, reference=reference)
    (path,) = write_volume(v, tmp_path, ["html"])
    reader = read_page(path)
    assert reader.text[:2] == ["knee.7 · pnpcm", "knee.7"]
    for piece in (RECORD["input"], "fastmri", "34.123", "0.9", "–", "12", "1, 2.5", "mask · kind"):
        assert piece in reader.text
    heads = [reader.text.index(head) for head in ("Slices", "Slice by slice", "Sampling", "Record")]
    assert heads == sorted(heads)  # pictures first
    prose = " ".join(reader.text)
    assert "×5 on the same scale, so white is an error of 0.2" in prose
    assert "4 of 8 phase-encode lines (white) measured, acceleration 2." in prose
    assert len(reader.pictures) == 2 + 8 * 4 + 1
    error = reader.pictures["error ×5 of slice 19"]
    assert error.size == (320, 320)
    assert error.getpixel((160, 160)) == 128  # 0.1 × 5 of a window up to 1
    assert reader.pictures["reference of slice 0"].getpixel((0, 0)) == 255
    mask = np.asarray(reader.pictures["Sampling mask"])[0, 32::64] > 0
    assert mask.tolist() == v.mask.tolist()


def test_a_page_without_extras(tmp_path: Path) -> None:
    rows = [{"psnr": float(k)} for k in range(20)]
    v = volume(std=None, record={"slices": rows, "empty": {}}, mask=torch.zeros(8, 8).bool())
    (path,) = write_volume(v, tmp_path, ["html"])
    reader = read_page(path)
    assert "20 rows" in reader.text
    assert sorted(reader.pictures) == ["Montage of magnitudes", "Sampling mask"]
    (path,) = write_volume(volume(record={}), tmp_path, ["html"])
    assert "Nothing was recorded." in read_page(path).text


def test_a_page_states_the_self_check_above_the_pictures(tmp_path: Path) -> None:
    check = {"verdict": "the data are explained", "fit": "it is <new>", "warnings": ["look"]}
    (path,) = write_volume(volume(record={"check": check | {"ok": False}}), tmp_path, ["html"])
    text = path.read_text(encoding="utf-8")
    sentence = "Self-check: the data are explained; it is &lt;new&gt;; look."
    assert text.index(f'<p class="check care">{sentence}</p>') < text.index("<h2>Slices</h2>")


@pytest.mark.parametrize("name", list(WRITERS))
def test_a_failure_leaves_nothing_and_the_old_result(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    write, seen = WRITERS[name], []

    def fail(v: Volume, folder: Path) -> list[Path]:
        seen.extend(write(v, folder))
        raise OSError("no space left")

    monkeypatch.setitem(WRITERS, name, fail)
    with pytest.raises(OSError, match="no space left"):
        write_volume(volume(), tmp_path, [name])
    assert seen
    assert list(tmp_path.iterdir()) == []

    monkeypatch.setitem(WRITERS, name, write)
    paths = write_volume(volume(), tmp_path, [name])
    before = {p: p.stat().st_ino for p in tmp_path.rglob("*")}
    monkeypatch.setitem(WRITERS, name, fail)
    with pytest.raises(OSError, match="no space left"):
        write_volume(volume(), tmp_path, [name])
    assert {p: p.stat().st_ino for p in tmp_path.rglob("*")} == before
    assert set(paths) == set(tmp_path.iterdir())


def test_dicom_that_stops_between_slices_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pydicom = pytest.importorskip("pydicom")
    save = pydicom.Dataset.save_as

    def save_two(self: Any, path: Path, **options: Any) -> None:
        if path.name == "0003.dcm":
            raise OSError("no space left")
        save(self, path, **options)

    monkeypatch.setattr(pydicom.Dataset, "save_as", save_two)
    with pytest.raises(OSError, match="no space left"):
        write_volume(volume(), tmp_path, ["npy", "dicom"])
    assert list(tmp_path.iterdir()) == []  # the formats appear together


def test_a_shorter_series_replaces_a_longer_one(tmp_path: Path) -> None:
    pytest.importorskip("pydicom")
    (folder,) = write_volume(volume(), tmp_path, ["dicom"])
    write_volume(volume(image=torch.ones(1, 6, 5) + 0j, std=None), tmp_path, ["dicom"])
    assert [p.name for p in folder.iterdir()] == ["0001.dcm"]
    assert list(tmp_path.iterdir()) == [folder]


def test_formats_are_checked_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UnknownNameError, match=r"unknown output format 'nifty'.*'nifti'"):
        write_volume(volume(), tmp_path, ["npy", "nifty"])
    with pytest.raises(ArgumentError, match=r"write \['npy'\]"):
        write_volume(volume(), tmp_path, "npy")
    with pytest.raises(ArgumentError, match="create it first"):
        write_volume(volume(), tmp_path / "no", ["npy"])
    with pytest.raises(ArgumentError, match="formats is empty; give at least one of h5, nifti"):
        write_volume(volume(), tmp_path, [])
    assert check_formats(["npy", "png", "npy"]) == ["npy", "png"]
    monkeypatch.setitem(sys.modules, "nibabel", None)
    with pytest.raises(MissingExtraError, match=r"nifti needs nibabel; pip install 'pnpcm\[mri\]'"):
        write_volume(volume(), tmp_path, ["npy", "nifti"])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"image": torch.ones(3, 6, 5)}, ShapeError, "image is torch.float32"),
        ({"image": torch.ones(6, 5) + 0j}, ShapeError, "expected complex"),
        ({"std": torch.ones(3, 5, 6)}, ShapeError, "std is"),
        ({"reference": torch.ones(3, 6, 5) + 0j}, ShapeError, "reference is"),
        ({"mask": torch.ones(1, 1, 8)}, ShapeError, "mask has shape"),
        ({"name": "a/b"}, ArgumentError, "name is 'a/b'"),
        ({"record": {"x": torch.ones(2)}}, ArgumentError, "record holds what JSON cannot"),
    ],
)
def test_a_volume_says_what_is_wrong_with_it(
    changes: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        volume(**changes)


def test_axes_that_are_none_are_not_written() -> None:
    with pytest.raises(ArgumentError, match="expected unit vectors"):
        volume(replace(OBLIQUE, readout=(0.0, 0.0, 0.0))).affine()
    with pytest.raises(ArgumentError, match=r"geometry\.voxel is"):
        volume(replace(OBLIQUE, voxel=(1.0, 0.0, 1.0))).affine()


@pytest.mark.parametrize("several", [True, False])
def test_the_names_of_all_files_are_known_before(tmp_path: Path, several: bool) -> None:
    v = volume() if several else volume(std=None)
    names = volume_files(v.name, list(WRITERS), several=several)
    known = write_volume(replace(v, protocol=PROTOCOL), tmp_path, list(WRITERS))
    assert [p.name for p in known] == names
    unknown = write_volume(v, tmp_path, list(WRITERS))
    assert [p.name for p in unknown] == [name for name in names if name != f"{v.name}.json"]
