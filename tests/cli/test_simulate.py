"""``pnpcm simulate``: borders of a blur, and the operators of the paper's code."""

import json
import os
import shutil
from contextlib import chdir
from pathlib import Path

import pytest
import torch
from PIL import Image
from typer.testing import CliRunner, Result

import pnpcm
from pnpcm import PRESETS, cli
from pnpcm.cli.shared import added_noise
from pnpcm.errors import ArgumentError, PnPCMError
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


def folder_with_bad_files(folder: Path) -> Path:
    """Two good images, a text, an image whose name is not UTF-8, and a link to itself."""
    folder.mkdir()
    for name in ("a", "z"):
        Image.new("RGB", (16, 16), (120, 120, 120)).save(folder / f"{name}.png")
    (folder / "bad.png").write_text("no picture")
    odd = Path(os.fsdecode(os.fsencode(folder) + b"/odd\xff.png"))
    odd.write_bytes((folder / "a.png").read_bytes())
    (folder / "loop.png").symlink_to(folder / "loop.png")
    return folder


def test_bad_files_are_named_and_the_rest_is_simulated(tmp_path: Path) -> None:
    folder, out = folder_with_bad_files(tmp_path / "in"), tmp_path / "y"
    words = ("simulate", folder, tmp_path / "nowhere.png", "--task", "denoise", "--out", out)
    done = run(*words)
    assert done.exit_code == 1
    lines = done.stderr.splitlines()
    assert len(lines) == 4
    for name in ("bad.png is not", "odd\\xff.png has a name that is not UTF-8", "loop.png"):
        assert any(line.startswith(f"pnpcm: {folder}/{name}") for line in lines)
    assert "nowhere.png does not exist" in lines[-1]
    assert sorted(p.name for p in out.iterdir()) == ["a.npz", "a.png", "z.npz", "z.png"]
    seeded = read_measurement(out / "z.npz").y  # its seed is that of its place among all inputs
    (folder / "bad.png").unlink()
    Image.new("RGB", (16, 16), (120, 120, 120)).save(folder / "bad.png")
    run(*words)
    assert torch.equal(read_measurement(out / "z.npz").y, seeded)


def test_a_single_bad_file_is_bad_input(tmp_path: Path) -> None:
    (tmp_path / "bad.png").write_text("no picture")
    done = run("simulate", tmp_path / "bad.png", "--task", "denoise", "--out", tmp_path / "y")
    assert done.exit_code == 2
    assert "bad.png is not a PNG" in done.stderr
    assert not (tmp_path / "y").exists()


def test_plans_and_results_of_restore_pass_over_bad_files(tmp_path: Path) -> None:
    folder = folder_with_bad_files(tmp_path / "in")
    planned = run("restore", folder, "--task", "denoise", "--sigma-y", 0.1, "--dry-run")
    assert planned.exit_code == 1
    assert planned.stdout.count('"prior"') == 2
    assert "bad.png is not" in planned.stderr
    inputs = (folder / "a.png", tmp_path / "nowhere", folder / "z.png")
    words = ("--task", "denoise", "--sigma-y", 0.1, "--out", tmp_path / "out")
    done = run("restore", *inputs, *words)
    assert done.exit_code == 1
    assert f"pnpcm: {tmp_path}/nowhere does not exist, expected an image; check" in done.stderr
    assert len(list((tmp_path / "out").glob("*.result.json"))) == 2
    alone = run("restore", tmp_path / "nowhere", *words)
    assert alone.exit_code == 2
    assert "nowhere does not exist, expected an image; check the path" in alone.stderr


def test_compare_passes_over_bad_pairs(tmp_path: Path) -> None:
    refs, outs = (folder_with_bad_files(tmp_path / name) for name in ("ref", "out"))
    done = run("compare", refs, outs, "--no-lpips", "--json")
    assert done.exit_code == 1
    content = json.loads(done.stdout)
    assert [row["name"] for row in content["images"]] == ["a", "z"]
    assert len(content["failed"]) == len(done.stderr.splitlines()) == 3
    assert "odd\\xff.png has a name that is not UTF-8; rename it" in done.stderr
    table = run("compare", refs, outs, "--no-lpips")
    assert table.exit_code == 1
    assert "mean" in table.stdout
    bad = run("compare", refs / "bad.png", outs / "bad.png")
    assert isinstance(bad.exception, ArgumentError)  # exit code 2
    assert "bad.png is not a PNG" in str(bad.exception)


def test_files_of_others_are_not_replaced_and_a_rerun_works(tmp_path: Path) -> None:
    pytest.importorskip("h5py")
    Image.new("RGB", (16, 16), (120, 120, 120)).save(tmp_path / "a.png")
    outputs = {
        "a.denoise.png": "restore a.png --task denoise --sigma-y 0.1 --out r",
        "a.npz": "simulate a.png --task denoise --out r",
        "a.png": "simulate a.png --task denoise --out r",
        "s.h5": "simulate-mri r/s.h5 --slices 1 --size 16,16 --coils 2",
        "p.png": "priors sample gaussian --n 1 --size 8 --steps 1 --out r/p.png",
        "q.json": "priors sample gaussian --n 1 --size 8 --steps 1 --out r/q.png",
    }
    with chdir(tmp_path):
        for name, command in outputs.items():
            folder = tmp_path / "r"
            folder.mkdir()
            (folder / name).write_text("of the user")
            code, err = shell(command)
            assert code == 2, command
            assert f"output r/{name} exists" in err
            assert "rename it, or give another" in err
            assert [(p.name, p.read_text()) for p in folder.iterdir()] == [(name, "of the user")]
            (folder / name).unlink()
            for _ in range(2):
                assert shell(command)[0] == 0
            shutil.rmtree(folder)
        (tmp_path / "q.png").write_text("of the user")
        words = "priors sample gaussian --n 1 --size 8 --out q.png"
        assert "or --force" in shell(words)[1]
        assert shell(f"{words} --force")[0] == 0


def shell(command: str) -> tuple[int, str]:
    """Exit code and error of a command, as of a shell."""
    done = run(*command.split())
    if isinstance(done.exception, PnPCMError):
        return 2, str(done.exception)
    return done.exit_code, done.stderr
