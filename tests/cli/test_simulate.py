"""``pnpcm simulate``: borders of a blur, and the operators of the paper's code."""

import json
from pathlib import Path

import pytest
import torch
from PIL import Image
from typer.testing import CliRunner, Result

import pnpcm
from pnpcm import PRESETS, cli
from pnpcm.cli.shared import added_noise
from pnpcm.errors import ArgumentError
from pnpcm.io.photos import read_photo
from pnpcm.networks.kernel_wizard import KernelWizard
from pnpcm.operators import JPEG, GaussianBlur, NonlinearBlur
from pnpcm.problems.measurement import read_measurement

PHOTO = Path(pnpcm.__file__).parent / "data" / "Picture_0B_by_freespace.png"


def run(*words: object) -> Result:
    return CliRunner().invoke(cli.app, [str(word) for word in words])


def test_simulated_blur_has_the_border_that_was_asked_for(tmp_path: Path) -> None:
    """5×5 taps 0.19800, 0.20100, 0.20200, …: with zero boundary a corner keeps 0.60100²."""
    Image.new("RGB", (24, 24), (191, 191, 191)).save(tmp_path / "flat.png")
    words = ("simulate", tmp_path / "flat.png", "--task", "deblur", "--gaussian", "5,10")
    corners = {}
    for boundary in (None, "reflect", "zero"):
        out = tmp_path / str(boundary)
        more = () if boundary is None else ("--boundary", boundary)
        assert run(*words, "--sigma-y", 0, "--out", out, *more).exit_code == 0
        y = read_measurement(out / "flat.npz").y
        corners[boundary] = float(y[0, 0, 0, 0] / y[0, 0, 12, 12])
    assert corners[None] == corners["reflect"] == pytest.approx(1.0, abs=1e-5)
    assert corners["zero"] == pytest.approx(0.60100**2, abs=1e-5)
    words_of_help = run("simulate", "--help").output.replace("│", " ").split()
    assert "reflect (default), zero (as in the paper)" in " ".join(words_of_help)


def test_the_noise_level_as_a_fraction_of_255(tmp_path: Path) -> None:
    Image.new("RGB", (24, 24), (120, 120, 120)).save(tmp_path / "flat.png")
    words = ("simulate", tmp_path / "flat.png", "--task", "denoise", "--out", tmp_path / "y")
    assert run(*words, "--sigma-y", "25/255").exit_code == 0
    assert read_measurement(tmp_path / "y" / "flat.npz").sigma_y == pytest.approx(
        25 / 255, rel=1e-6
    )
    with pytest.raises(ArgumentError, match=r"25 of 255 is 0\.098"):
        added_noise("25")
    assert run(*words, "--sigma-y", 25).exit_code != 0


def test_the_papers_operators_are_reached_from_the_command_line(tmp_path: Path) -> None:
    with Image.open(PHOTO) as photo:
        photo.convert("RGB").crop((0, 0, 128, 128)).save(tmp_path / "clean.png")
    network = KernelWizard(width=2)
    torch.save(network.state_dict(), tmp_path / "wizard.pth")
    x = read_photo(tmp_path / "clean.png").x
    expected = {
        "deblur": GaussianBlur((3, 128, 128), reference=True).A(x),
        "jpeg": JPEG(5).acquire(x),
        "nonlinear-deblur": NonlinearBlur(network.requires_grad_(False)).A(x),
    }
    options: dict[str, tuple[object, ...]] = {
        "deblur": ("--gaussian", "5,10", "--reference-operator"),
        "jpeg": ("--quality", 5, "--reference-operator"),
        "nonlinear-deblur": ("--kernel-wizard", tmp_path / "wizard.pth"),
        "phase-retrieval": ("--reference-operator",),
    }
    rows = {"deblur": "deblur-gauss", "jpeg": "jpeg-5"}
    for task, words in options.items():
        out = tmp_path / task
        done = run(
            *("simulate", tmp_path / "clean.png", "--task", task, "--sigma-y", 0, "--out", out),
            *words,
        )
        assert done.exit_code == 0, done.output
        measured = read_measurement(out / "clean.npz")
        preset = PRESETS[f"celeba-hq/{rows.get(task, task)}-reference"]
        assert measured.task.options == dict(preset.options)
        if task in expected:
            assert torch.allclose(measured.y, expected[task].float(), atol=1e-5)
    name = "celeba-hq/deblur-gauss-reference"
    planned = run("restore", tmp_path / "deblur" / "clean.npz", "--preset", name, "--dry-run")
    resolved = json.loads(planned.output)
    assert resolved["options"]["reference"] is True
    assert resolved["parameters_from"] == f"preset {name}"
