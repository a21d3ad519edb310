"""``pnpcm mri`` and ``pnpcm simulate-mri`` as a user calls them."""

import io
import json
import re
from contextlib import redirect_stderr
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from pnpcm.cli import app, main
from pnpcm.errors import ArgumentError
from pnpcm.mri import read_scan
from pnpcm.mri.readers import write_cfl
from pnpcm.recon.scan import find_scans
from pnpcm.transforms import ifft2c

h5py = pytest.importorskip("h5py")
nibabel = pytest.importorskip("nibabel")
RUN = CliRunner()


def call(*words: object) -> str:
    result = RUN.invoke(app, [str(w) for w in words])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


def refused(sentence: str, *words: object) -> None:
    """Exit code 2 and one sentence."""
    said = io.StringIO()
    with (
        patch("sys.argv", ["pnpcm", *map(str, words)]),
        redirect_stderr(said),
        pytest.raises(SystemExit) as stop,
    ):
        main()
    assert stop.value.code == 2
    assert re.search(sentence, said.getvalue()), said.getvalue()
    assert "Traceback" not in said.getvalue()


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
    refused("already undersampled", "mri", path, "--mask", "uniform1d", "--out", tmp_path / "out")


def test_dry_run_writes_nothing(raw: Path, tmp_path: Path) -> None:
    record = json.loads(call("mri", raw, "--dry-run", "--out", tmp_path / "out", "--steps", 6))
    assert len(record["solver"]["sigmas"]) == 6
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--mask", "gausian1d"), "did you mean 'gaussian1d'"),
        (
            ("--mask", "gaussian1d", "--acs", "4", "--center-fraction", "0.1"),
            "both set the",
        ),
        (("--scale", "oracle"), "needs a fully sampled scan"),
        (("--slices", "7"), "has 0…1"),
        (("--slices", "a:b"), "expected 3, 3:10"),
        (("--format", "niftii"), "did you mean 'nifti'"),
        (("--prior", "natural"), "does not take complex images"),
        (("--mask", "uniform1d", "--acs", "3", "--kernel", "6"), "calibration|kernel"),
    ],
)
def test_refusals(raw: Path, tmp_path: Path, words: tuple[str, ...], sentence: str) -> None:
    refused(sentence, "mri", raw, "--out", tmp_path / "out", *words)
    assert not (tmp_path / "out").exists()


def test_one_bad_file_does_not_stop_the_others(raw: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.h5"
    bad.write_text("no")
    words = ["mri", str(bad), str(raw), "--out", str(tmp_path / "out"), "--format", "png"]
    result = RUN.invoke(app, words)
    assert result.exit_code == 1
    assert (tmp_path / "out" / "head.png").exists()


def test_other_formats_leave_nothing_of_an_older_run(raw: Path, tmp_path: Path) -> None:
    words = ("mri", raw, "--slices", 0, "--out", tmp_path, "--mask", "gaussian1d", "--acs", 16,
             "--acceleration", 2)  # fmt: skip
    call(*words, "--format", "npy,png")
    (tmp_path / "mine.png").write_bytes(b"not ours")
    call(*words, "--format", "h5")
    left = sorted(p.name for p in tmp_path.iterdir())
    assert left == ["head.h5", "head.result.json", "mine.png"]
    assert json.loads((tmp_path / "head.result.json").read_text())["files"] == ["head.h5"]


def test_a_second_run_keeps_what_is_finished(raw: Path, tmp_path: Path) -> None:
    words = ("mri", raw, "--slices", 0, "--out", tmp_path, "--mask", "gaussian1d", "--acs", 16,
             "--acceleration", 2, "--format", "npy")  # fmt: skip
    first = call(*words)
    assert first.splitlines()[-1].startswith("done: ")
    assert "data: " in first
    assert "seconds: " in first
    when = (tmp_path / "head.npy").stat().st_mtime_ns
    assert call(*words).startswith("kept: ")
    assert (tmp_path / "head.npy").stat().st_mtime_ns == when
    assert call(*words, "--seed", 1).splitlines()[-1].startswith("done: ")
    record = json.loads((tmp_path / "head.result.json").read_text())
    assert record["seconds"]["write"] > 0
    assert record["seconds"]["prior"] > 0


def test_an_output_never_replaces_its_input(raw: Path, tmp_path: Path) -> None:
    path = tmp_path / "head.h5"
    path.write_bytes(raw.read_bytes())
    with pytest.raises(ArgumentError, match=r"output .*head\.h5 is an input; give another folder"):
        call("mri", path, "--out", tmp_path, "--format", "png,h5")
    assert path.read_bytes() == raw.read_bytes()


def test_arrays_in_another_order_and_maps_of_bart(raw: Path, tmp_path: Path) -> None:
    kspace = read_scan(raw).slices([0])
    kspace[..., 1:24:2] = kspace[..., 49::2] = 0
    np.save(tmp_path / "plain.npy", kspace.numpy())
    np.savez(tmp_path / "turned.npz", raw=kspace.permute(2, 3, 1, 0).numpy())
    maps = torch.full((64, 72, 1, 4), 0.5, dtype=torch.complex64)
    maps[..., 1:] *= 1j  # another set of maps gives another image
    write_cfl(tmp_path / "maps", maps)
    words = ("--steps", 2, "--out", tmp_path / "out", "--format", "npy")
    given = ("--maps", tmp_path / "maps.cfl", *words)
    call("mri", tmp_path / "plain.npy", *given)
    call("mri", tmp_path / "turned.npz", "--key", "raw", "--axes", "row,col,coil,slice", *given)
    plain, turned = (np.load(tmp_path / "out" / f"{name}.npy") for name in ("plain", "turned"))
    assert plain.shape == (1, 64, 72)
    assert np.array_equal(plain, turned)
    record = json.loads((tmp_path / "out" / "plain.result.json").read_text())
    assert record["preparation"]["coil_maps"] == "given"
    result = RUN.invoke(app, ["mri", str(tmp_path / "plain.npy"), "--axes", "a,b"])
    assert result.exit_code == 2
    assert "--axes is 'a,b'; expected row and col" in result.stderr
    with pytest.raises(ArgumentError, match=r"--maps none\.cfl cannot be read"):
        call("mri", raw, "--maps", "none.cfl")


def test_an_image_in_an_npy_file_is_named(raw: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "image.npy", ifft2c(read_scan(raw).kspace(0)).numpy())
    text = call("mri", tmp_path / "image.npy", "--steps", 2, "--out", tmp_path / "out",
                "--format", "png")  # fmt: skip
    assert "warning: the input looks like an image, not k-space" in text


def test_two_scans_of_one_name_are_refused(raw: Path, tmp_path: Path) -> None:
    other = tmp_path / "other" / raw.name
    other.parent.mkdir()
    other.write_bytes(raw.read_bytes())
    refused("same output name", "mri", raw, other, "--out", tmp_path / "out")


def test_scans_that_would_replace_files_are_refused(raw: Path, tmp_path: Path) -> None:
    """The std of ``head`` has the name of the result of ``head_std``; h5 that of the scan."""
    folder = tmp_path / "in"
    folder.mkdir()
    for name in ("head.h5", "head_std.h5"):
        (folder / name).write_bytes(raw.read_bytes())
    out = tmp_path / "out"
    refused("would both write .*head_std.nii.gz", "mri", folder, "--samples", 2, "--out", out)
    refused("head.h5 is an input; give another", "mri", folder, "--out", folder)
    assert not out.exists()
    assert sorted(p.name for p in folder.iterdir()) == ["head.h5", "head_std.h5"]


def test_folders_are_searched_for_raw_files_but_not_for_results(tmp_path: Path) -> None:
    names = ["a.cfl", "b.dat", "c.npy", "d.npz", "e.h5"]
    for name in (*names, "a.hdr", "old.npy", "old.h5", "c.png"):
        (tmp_path / name).touch()
    record = {"input": "elsewhere/old.dat", "files": ["old.npy", "old.h5"]}
    (tmp_path / "old.result.json").write_text(json.dumps(record))
    assert find_scans([tmp_path]) == ([tmp_path / name for name in names], [])


def test_an_empty_folder_beside_a_scan_is_named_and_the_scan_is_planned(
    raw: Path, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    words = ["mri", raw, tmp_path / "empty", "--mask", "gaussian1d", "--dry-run"]
    result = RUN.invoke(app, [str(word) for word in words])
    assert result.exit_code == 1
    assert json.loads(result.stdout)["scan"]["name"] == "head"
    assert f"pnpcm: input {tmp_path}/empty is a folder without raw scans" in result.stderr
    refused("is a folder without raw scans", "mri", tmp_path / "empty")


def test_messages_use_the_spelling_of_the_command_line(raw: Path, tmp_path: Path) -> None:
    refused(r"--steps must be", "mri", raw, "--steps", 0, "--out", tmp_path)
    refused(r"--sigma-y is 'x'", "mri", raw, "--sigma-y", "x", "--out", tmp_path)
    refused(r"--scale is .*; give --mask, or", "mri", raw, "--scale", "oracle", "--out", tmp_path)
    few = ("--mask", "gaussian1d", "--acs", 6, "--kernel", 30)
    refused(r"or give --maps", "mri", raw, *few, "--out", tmp_path)
    two = ("--mask", "gaussian1d", "--acs", 8, "--center-fraction", 0.1)
    refused(r"give --acs or give --center-fraction", "mri", raw, *two, "--out", tmp_path)
    rule = ("--step-rule", "released")
    refused(r"give --preset and give --steps", "mri", raw, *rule, "--out", tmp_path)


def test_progress_names_the_scan_and_the_slice(
    raw: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["mri", str(raw), "--mask", "gaussian1d", "--acs", "16", "--acceleration", "2"]
    words += ["--steps", "2", "--format", "npy", "--out", str(tmp_path)]
    result = RUN.invoke(app, words)
    assert result.stderr == "mri: head, slice 1 of 2\n"
    assert result.stdout.splitlines()[-1] == f"done: {tmp_path / 'head.npy'}"
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes stderr for a terminal
    monkeypatch.setenv("COLUMNS", "100")
    result = RUN.invoke(app, [*words, "--seed", "1", "--json"])
    assert json.loads(result.stdout)["status"] == "done"
    for text in ("head, reading", "loading prior mri", "head, slice 1 of 2", "head, slice 2 of 2"):
        assert text in result.stderr


def test_maps_of_raw_coils_name_the_options_that_change_coils(raw: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "maps.npy", np.ones((4, 64, 72), np.complex64))
    given = ("--maps", tmp_path / "maps.npy", "--dry-run", "--mask", "gaussian1d")
    sentence = "--maps are given .*; leave --coils out and give --no-whiten"
    refused(sentence, "mri", raw, *given, "--coils", 2)
