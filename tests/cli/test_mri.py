"""``pnpcm mri`` and ``pnpcm simulate-mri`` as a user calls them."""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from pnpcm.cli import app
from pnpcm.errors import ArgumentError

h5py = pytest.importorskip("h5py")
nibabel = pytest.importorskip("nibabel")
RUN = CliRunner()


def call(*words: object) -> str:
    result = RUN.invoke(app, [str(w) for w in words])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("raw") / "head.h5"
    call("simulate-mri", path, "--slices", 2, "--size", "64,72", "--coils", 4)
    return path


def test_a_full_scan_is_undersampled_reconstructed_and_scored(raw: Path, tmp_path: Path) -> None:
    words = ("mri", raw, "--mask", "gaussian1d", "--acceleration", 2, "--acs", 16)
    text = call(*words, "--out", tmp_path, "--format", "h5,nifti,png,html,npy", "--json")
    record = json.loads(text)
    assert [s["convention"].split()[0] for s in record["scores"]] == ["paper", "fastMRI"]
    assert all(s["psnr"] > 25 for s in record["scores"])
    with h5py.File(tmp_path / "head.h5") as file:
        magnitude = file["reconstruction"][()]
    assert magnitude.shape == (2, 64, 72)
    image = nibabel.load(tmp_path / "head.nii.gz").get_fdata()
    np.testing.assert_allclose(np.moveaxis(image, 2, 0), magnitude, rtol=1e-5, atol=1e-6)
    complex_image = np.load(tmp_path / "head.npy")
    np.testing.assert_allclose(np.abs(complex_image), magnitude, rtol=1e-5, atol=1e-6)
    written = json.loads((tmp_path / "head.result.json").read_text())
    assert written["files"] == record["files"]
    assert not list(tmp_path.glob(".pnpcm*"))


@pytest.mark.parametrize(("acceleration", "worst"), [(4, 0.05), (8, 0.15)])
def test_few_lines_give_a_picture(tmp_path: Path, acceleration: int, worst: float) -> None:
    """64², 4 coils, all defaults: the error stays far below 1, that of a blank image."""
    path = tmp_path / "small.h5"
    call("simulate-mri", path, "--slices", 1, "--size", "64,64", "--coils", 4)
    words = ("mri", path, "--mask", "gaussian1d", "--acceleration", acceleration)
    text = call(*words, "--out", tmp_path / "out", "--format", "png", "--json")
    record = json.loads(text)
    assert len(record["scores"]) == 2
    assert all(s["nmse"] < worst for s in record["scores"])
    assert record["preparation"]["maps"]["covered"] > 0.9
    sets = call(*words, "--map-sets", 2, "--out", tmp_path / "out", "--format", "png", "--json")
    assert json.loads(sets)["preparation"]["maps"]["map_sets"] == 2


def test_an_undersampled_scan_is_reconstructed_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "under.h5"
    call("simulate-mri", path, "--slices", 1, "--size", "64,64", "--coils", 4, "--mask",
         "gaussian1d", "--acceleration", 2, "--acs", 16)  # fmt: skip
    text = call("mri", path, "--out", tmp_path / "out", "--format", "png")
    assert "acceleration 2" in text
    assert "PSNR" not in text
    with pytest.raises(ArgumentError, match="already undersampled"):
        call("mri", path, "--mask", "uniform1d", "--out", tmp_path / "out")


def test_dry_run_writes_nothing(raw: Path, tmp_path: Path) -> None:
    record = json.loads(call("mri", raw, "--dry-run", "--out", tmp_path / "out", "--steps", 6))
    assert len(record["solver"]["sigmas"]) == 6
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--mask", "gausian1d"), "did you mean 'gaussian1d'"),
        (("--mask", "gaussian1d", "--acs", "4", "--center-fraction", "0.1"), "two spellings"),
        (("--scale", "oracle"), "needs a fully sampled scan"),
        (("--slices", "7"), "has 0…1"),
        (("--slices", "a:b"), "expected 3, 3:10"),
        (("--format", "niftii"), "did you mean 'nifti'"),
        (("--prior", "natural"), "not for complex images"),
        (("--mask", "uniform1d", "--acs", "3", "--kernel", "6"), "calibration|kernel"),
    ],
)
def test_refusals(raw: Path, tmp_path: Path, words: tuple[str, ...], sentence: str) -> None:
    with pytest.raises((ArgumentError, KeyError), match=sentence):
        call("mri", raw, "--out", tmp_path / "out", *words)
    assert not (tmp_path / "out").exists()


def test_one_bad_file_does_not_stop_the_others(raw: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.h5"
    bad.write_text("no")
    words = ["mri", str(bad), str(raw), "--out", str(tmp_path / "out"), "--format", "png"]
    result = RUN.invoke(app, words)
    assert result.exit_code == 1
    assert (tmp_path / "out" / "head.png").exists()
