"""The values of the page mean the same as the options of the command line and of Python."""

import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageDraw

from pnpcm.app.form import METHODS, TASK_LABELS, Form, prior_names
from pnpcm.app.work import Upload, Work
from pnpcm.cli import main
from pnpcm.errors import ArgumentError
from pnpcm.problems import TASKS
from pnpcm.recon import Options
from pnpcm.solvers import SOLVERS


def test_a_form_without_changes_has_the_default_options() -> None:
    assert Form().options("default") == Options()
    assert Form().command("default", "a.png") == "pnpcm restore a.png --task denoise"


def test_every_task_and_method_is_offered_but_those_with_a_reason() -> None:
    assert set(TASKS) - set(TASK_LABELS) == {"phase-retrieval"}
    assert set(TASK_LABELS) - set(TASKS) == {"mri"}
    assert set(SOLVERS) - set(METHODS) == {"cosign"}
    assert set(prior_names()) >= {"natural", "faces"}
    assert "mri" not in prior_names()


def test_numbers_of_the_page_become_whole_where_they_are() -> None:
    form = Form.of({"steps": 4.0, "sigma_y": 1, "seed": 3})
    assert (form.steps, form.sigma_y, form.seed) == (4, 1.0, 3)
    assert [type(v) for v in (form.steps, form.sigma_y)] == [int, float]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"steps": None}, "steps is empty"),
        ({"steps": 2.5}, "steps is 2.5, expected a whole number"),
        ({"steps": True}, "steps is True, expected a whole number"),
        ({"steps": -1}, "steps must be a whole number, in [0, 1000], got -1"),
        ({"sigma_y": "0.1"}, "sigma_y is '0.1', expected a number"),
        ({"sigma_y": float("nan")}, "sigma_y is nan, expected a number"),
        ({"sigma_y": 25.0}, "sigma_y must lie in [0, 1], got 25.0"),
        ({"samples": 17}, "samples must be a whole number, in [1, 16], got 17"),
        ({"factor": 100}, "factor must be a whole number, in [2, 8], got 100"),
        ({"prior": "/etc/passwd"}, "prior must be one of"),
        ({"prior": "someone/model"}, "prior must be one of"),
        ({"method": "cosign"}, "method must be one of"),
        ({"task": "phase-retrieval"}, "task must be one of"),
        ({"length": float("inf")}, "length is inf, expected a number"),
        ({"slice": -1}, "slice must be a whole number, in [0, 9999], got -1"),
        ({"acceleration": 9}, "acceleration must be a whole number, in [1, 8], got 9"),
        ({"axes": "row," * 99}, "axes has more than 200 letters"),
    ],
)
def test_values_outside_of_their_bounds_are_refused(
    values: Mapping[str, Any], message: str
) -> None:
    with pytest.raises(ArgumentError, match=re.escape(message)):
        Form.of(values)


CASES: dict[str, Mapping[str, Any]] = {
    "denoise": {"task": "denoise", "noise": "known", "sigma_y": 0.04, "method": "tv"},
    "inpaint": {"task": "inpaint", "method": "tv"},
    "inpaint, estimated": {"task": "inpaint", "method": "tv", "noise": "estimated"},
    "superres": {"task": "superres", "factor": 2, "downsampler": "area", "method": "wiener"},
    "gaussian": {"task": "deblur", "size": 5, "width": 1.25, "method": "wiener"},
    "motion": {"task": "deblur", "blur": "motion", "length": 4.5, "method": "wiener"},
    "kernel": {"task": "deblur", "blur": "kernel", "method": "wiener", "boundary": "reflect"},
    "samples": {"task": "superres", "factor": 2, "samples": 2, "seed": 7, "aim": "perception"},
}


@pytest.mark.parametrize("case", CASES)
def test_command_and_code_compute_the_pixels_of_the_page(
    case: str, work: Work, photo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marks = Image.new("L", (24, 16))
    ImageDraw.Draw(marks).rectangle((5, 5, 9, 8), fill=255)
    kernel = photo.with_name("k.npy")
    np.save(kernel, np.array([[0.2, 0.5, 0.3]]))
    (view,) = work.restore("s", Form.of(CASES[case]), Upload(photo, None, kernel, marks))
    with Image.open(view.files[0]) as picture:
        expected = np.asarray(picture)
    folder = tmp_path / "shell"
    folder.mkdir()
    monkeypatch.chdir(folder)
    Path("my photo.png").write_bytes(photo.read_bytes())
    Path("kernel.npy").write_bytes(kernel.read_bytes())
    for mask in (path for path in view.files if path.name == "mask.png"):
        Path("mask.png").write_bytes(mask.read_bytes())
    monkeypatch.setattr("sys.argv", shlex.split(view.command))
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 0
    (result,) = folder.glob(f"out/restored/my photo.{CASES[case]['task']}.png")
    exec(compile(view.code, "code", "exec"), {})
    for path in (result, Path("restored.png")):
        with Image.open(path) as picture:
            assert np.array_equal(np.asarray(picture), expected), path


@pytest.mark.parametrize("acceleration", [1, 2])
def test_command_and_code_compute_the_slice_of_the_page(
    acceleration: int, work: Work, scan: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nibabel = pytest.importorskip("nibabel", reason="the result of a scan is NIfTI")
    form = Form(
        task="mri",
        slice=1,
        acceleration=acceleration,
        samples=2,
        steps=2,
        axes="slice,coil,row,col",
    )
    (view,) = work.restore("s", form, Upload(scan))
    expected = nibabel.load(view.files[0]).get_fdata()
    folder = tmp_path / "shell"
    folder.mkdir()
    monkeypatch.chdir(folder)
    Path("my scan.npy").write_bytes(scan.read_bytes())
    monkeypatch.setattr("sys.argv", shlex.split(view.command))
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 0
    exec(compile(view.code, "code", "exec"), {})
    for path in (Path("out/mri/my scan.nii.gz"), Path("my scan.nii.gz")):
        assert np.array_equal(nibabel.load(path).get_fdata(), expected), path


def test_tasks_without_a_fast_method_have_the_same_words() -> None:
    """Their methods call a network; the test above would take seconds."""
    for form, words, code in (
        (Form(task="jpeg", quality=30), "jpeg --quality 30", "'jpeg', options={'quality': 30}"),
        (Form(task="jpeg"), "jpeg", "'jpeg'"),
        (
            Form(task="nonlinear-deblur", length=3.0, angle=10.0),
            "nonlinear-deblur --length 3.0 --angle 10.0",
            "'nonlinear-deblur', options={'length': 3.0, 'angle': 10.0}",
        ),
        (
            Form(task="deblur", boundary="zero", linear_light=True),
            "deblur --gaussian 9,2.0 --boundary zero --linear-light",
            "'deblur', options={'gaussian': (9, 2.0), 'boundary': 'zero', 'linear_light': True}",
        ),
    ):
        assert form.command("default", "a.jpg") == f"pnpcm restore a.jpg --task {words}"
        assert f"TaskChoice({code}).of(photo)" in form.code("default", "a.jpg")


def test_two_methods_have_two_commands_with_their_own_folders() -> None:
    form = Form(task="superres", second="dpir")
    assert form.methods == ("default", "dpir")
    commands = [form.command(method, "a b.png") for method in form.methods]
    assert commands == [
        "pnpcm restore 'a b.png' --task superres --factor 4 --out out/default",
        "pnpcm restore 'a b.png' --task superres --factor 4 --method dpir --out out/dpir",
    ]


def test_a_task_that_lacks_its_file_says_which() -> None:
    with pytest.raises(ArgumentError, match="no area is marked"):
        Form(task="inpaint").choice(Path("a.png"), None, None)
    with pytest.raises(ArgumentError, match="kernel file is missing"):
        Form(task="deblur", blur="kernel").choice(Path("a.png"), None, None)


@pytest.mark.parametrize("name", ["a.npz", "A.NPZ"])
def test_a_measurement_file_brings_its_task(name: str) -> None:
    form = Form(task="deblur")
    assert form.command("default", name) == f"pnpcm restore {name}"
    assert "read_measurement" in form.code("default", name)
