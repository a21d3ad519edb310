"""``pnpcm restore`` and ``simulate``: images from files of many kinds, and error messages."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw, ImageFilter

import pnpcm as package
from pnpcm.cli import main
from pnpcm.io.files import read_image
from pnpcm.metrics import psnr

DATA = Path(package.__file__).parent / "data"


@dataclass
class Done:
    code: int
    out: str
    err: str


Run = Callable[..., Done]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*words: object) -> Done:
        monkeypatch.setattr("sys.argv", ["pnpcm", *map(str, words)])
        code = 0
        try:
            main()
        except SystemExit as exit_:
            code = int(exit_.code or 0)
        captured = capsys.readouterr()
        return Done(code, captured.out, captured.err)

    return call


def picture(side: int = 64) -> Image.Image:
    with Image.open(DATA / "Wine_by_Jakkub_Mede.png") as whole:
        return whole.convert("RGB").crop((60, 60, 60 + side, 60 + side))


def noisy(side: int = 64, std: float = 20) -> Image.Image:
    values = np.asarray(picture(side), np.float64)
    noise = np.random.default_rng(0).normal(0, std, values.shape)
    return Image.fromarray(np.clip(values + noise, 0, 255).astype(np.uint8))


def score(a: Path, b: Image.Image) -> float:
    b.save(a.parent / "truth.png")
    return float(psnr(read_image(a), read_image(a.parent / "truth.png")))


def test_a_noisy_picture(run: Run, tmp_path: Path) -> None:
    noisy().save(tmp_path / "in.png")
    done = run("restore", tmp_path / "in.png", "--task", "denoise", "--out", tmp_path / "out")
    assert done.code == 0, done.err
    assert "network evaluations" in done.out
    assert score(tmp_path / "out" / "in.png", picture()) > score(tmp_path / "in.png", picture()) + 2
    record = json.loads((tmp_path / "out" / "in.result.json").read_text())
    assert record["task"] == "denoise"
    assert 0.05 < record["sigma_y"] < 0.11  # 20 / 255 = 0.078
    assert record["check"]["verdict"]
    assert (record["method"], record["nfe"]) == ("dpir", 1)  # one call of the denoiser
    assert record["seconds"]["write"] > 0


def test_a_second_run_keeps_what_is_finished(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for name in ("a", "b"):
        noisy(32).save(folder / f"{name}.png")
    words = ("restore", folder, "--task", "denoise", "--json", "--out", tmp_path / "out")
    first = [json.loads(line) for line in run(*words).out.splitlines()]
    assert [row["status"] for row in first] == ["done", "done"]
    stale = tmp_path / "out" / ".pnpcm-999999999-abc.b.png"
    stale.write_text("left by a killed run")
    noisy(32, 40).save(folder / "b.png")
    second = [json.loads(line) for line in run(*words).out.splitlines()]
    assert [row["status"] for row in second] == ["kept", "done"]  # b has changed
    assert not stale.exists()
    third = [json.loads(line) for line in run(*words, "--steps", 2).out.splitlines()]
    assert [row["status"] for row in third] == ["done", "done"]  # another request


def test_one_bad_file_among_good_ones(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    noisy(32).save(folder / "good.png")
    (folder / "text.png").write_text("no picture at all")
    content = (folder / "good.png").read_bytes()
    (folder / "cut.png").write_bytes(content[: len(content) // 2])
    done = run("restore", folder, "--task", "denoise", "--out", tmp_path / "out")
    assert done.code == 1
    lines = [line for line in done.err.splitlines() if line.startswith("pnpcm: ")]
    assert len(lines) == 2
    assert "cut.png" in lines[0]
    assert "text.png" in lines[1]
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["good.png", "good.result.json"]


def test_scribbles_by_mask_and_by_colour(run: Run, tmp_path: Path) -> None:
    scribbled, mask = picture(), Image.new("L", (64, 64))
    for each, colour in ((scribbled, "#ff00ff"), (mask, "white")):
        ImageDraw.Draw(each).line((5, 5, 58, 40, 20, 60), fill=colour, width=3)
    scribbled.save(tmp_path / "in.png")
    mask.save(tmp_path / "mask.png")
    before = score(tmp_path / "in.png", picture())
    for flag, value in (("--mask", tmp_path / "mask.png"), ("--mask-color", "#ff00ff")):
        out = tmp_path / flag.strip("-")
        words = ("restore", tmp_path / "in.png", "--task", "inpaint", flag, value, "--out", out)
        done = run(*words, "--sigma-y", 0.005)
        assert done.code == 0, done.err
        assert score(out / "in.png", picture()) > before + 6


def test_jpeg_reads_its_own_tables(run: Run, tmp_path: Path) -> None:
    picture().save(tmp_path / "in.jpg", quality=8)
    out = tmp_path / "out"
    done = run("restore", tmp_path / "in.jpg", "--task", "jpeg", "--out", out)
    assert done.code == 0, done.err
    assert score(out / "in.png", picture()) > score(tmp_path / "in.jpg", picture())
    picture().save(tmp_path / "in.png")
    refused = run("restore", tmp_path / "in.png", "--task", "jpeg", "--out", out)
    assert refused.code == 2
    assert "expected a JPEG" in refused.err


def test_blur_made_by_another_tool(run: Run, tmp_path: Path) -> None:
    """Pillow's Gaussian of radius 1.5 on a larger image: borders of no boundary condition here."""
    blurred = picture(96).filter(ImageFilter.GaussianBlur(1.5)).crop((16, 16, 80, 80))
    blurred.save(tmp_path / "in.png")
    words = ("restore", tmp_path / "in.png", "--task", "deblur", "--gaussian", "11,1.5")
    done = run(*words, "--sigma-y", 0.005, "--out", tmp_path / "out")
    assert done.code == 0, done.err
    truth = picture(96).crop((16, 16, 80, 80))
    assert score(tmp_path / "out" / "in.png", truth) > score(tmp_path / "in.png", truth) + 1


@pytest.mark.parametrize(
    ("task", "words"),
    [
        ("superres", ("--factor", 3)),
        ("inpaint", ("--missing", 0.5)),
        ("deblur", ("--motion", "7,20")),
        ("nonlinear-deblur", ()),
        ("jpeg", ("--quality", 10, "--sigma-y", 0)),
        ("phase-retrieval", ("--sigma-y", 0.01)),
        ("denoise", ()),
    ],
)
def test_simulated_measurements_are_read_back(
    run: Run, tmp_path: Path, task: str, words: tuple[object, ...]
) -> None:
    picture(47).save(tmp_path / "clean.png")
    measured = tmp_path / "measured"
    done = run("simulate", tmp_path / "clean.png", "--task", task, *words, "--out", measured)
    assert done.code == 0, done.err
    out = tmp_path / "out"
    reference = ("--reference", tmp_path / "clean.png") if task == "phase-retrieval" else ()
    done = run("restore", measured / "clean.npz", "--out", out, "--steps", 2, *reference)
    assert done.code == 0, done.err
    with Image.open(out / "clean.png") as result:
        assert result.size == (47, 47)
    record = json.loads((out / "clean.result.json").read_text())
    assert record["task"] == task


def test_sixteen_bits_alpha_and_grey_stay(run: Run, tmp_path: Path) -> None:
    rgba = noisy(32).convert("RGBA")
    rgba.putalpha(Image.linear_gradient("L").resize((32, 32)))
    rgba.save(tmp_path / "rgba.png")
    grey = np.asarray(noisy(32).convert("L"), np.uint16) * 257
    Image.fromarray(grey).save(tmp_path / "grey.tif")
    out = tmp_path / "out"
    inputs = (tmp_path / "rgba.png", tmp_path / "grey.tif")
    assert run("restore", *inputs, "--task", "denoise", "--out", out).code == 0
    with Image.open(out / "rgba.png") as a, Image.open(out / "grey.tif") as b:
        assert a.mode == "RGBA"
        assert a.getchannel("A").tobytes() == rgba.getchannel("A").tobytes()
        values = np.asarray(b)
    assert values.dtype == np.uint16
    assert len(np.unique(values % 257)) > 10  # sixteen bits, not eight of them


def test_dry_run_prints_and_writes_nothing(run: Run, tmp_path: Path) -> None:
    noisy(32).save(tmp_path / "in.png")
    words = ("restore", tmp_path / "in.png", "--task", "denoise", "--out", tmp_path / "out")
    done = run(*words, "--dry-run", "--set", "rho_start=0.123", "--steps", 3)
    resolved = json.loads(done.out)
    assert resolved["solver"]["rhos"][0] == pytest.approx(0.123)
    assert len(resolved["solver"]["sigmas"]) == 3
    assert not (tmp_path / "out").exists()


def test_own_operator(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mirror_module.py").write_text(
        "class Mirror:\n"
        "    def __init__(self, shape): self.shape = shape\n"
        "    def A(self, x): return x.flip(-1)\n"
        "    def A_adjoint(self, y): return y.flip(-1)\n"
        "    def prox_l2(self, z, y, gamma): return (z + gamma * y.flip(-1)) / (1 + gamma)\n"
    )
    noisy(32).transpose(Image.Transpose.FLIP_LEFT_RIGHT).save("in.png")
    done = run("restore", "in.png", "--operator", "mirror_module:Mirror", "--out", "out")
    assert done.code == 0, done.err
    noisy(32).save("unmirrored.png")
    before = score(Path("unmirrored.png"), picture(32))
    assert score(Path("out/in.png"), picture(32)) > before + 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--task", "denoize"), "did you mean 'denoise'"),
        (("--task", "denoise", "--factor", 4), "does not take factor"),
        (("--task", "deblur"), "exactly one of kernel"),
        (("--task", "deblur", "--gaussian", "5"), "expected two numbers"),
        (("--task", "inpaint"), "needs --mask"),
        (("--task", "phase-retrieval"), "a measurement file"),
        ((), "give --task"),
        (("--task", "denoise", "--sigma-y", "loud"), "expected auto or a number"),
        (("--task", "denoise", "--sigma-y", "25"), "25 of 255 is 0.098: write 0.098 or"),
        (("--task", "denoise", "--sigma-y", "25/0"), "expected auto or a number"),
        (("--task", "denoise", "--format", "gif"), "expected png"),
        (("--task", "denoise", "--set", "rho=1"), "unknown hyperparameter 'rho'"),
        (("--task", "denoise", "--prior", "nature"), "did you mean 'natural'"),
        (("--task", "denoise", "--preset", "nowhere.json"), "not a readable preset file"),
    ],
)
def test_bad_words(run: Run, tmp_path: Path, words: tuple[object, ...], message: str) -> None:
    noisy(32).save(tmp_path / "in.png")
    done = run("restore", tmp_path / "in.png", *words, "--out", tmp_path / "out")
    assert done.code == 2
    assert message in done.err
    assert done.err.count("\n") == 1
    assert not list((tmp_path / "out").glob("*"))


def test_bad_places(run: Run, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    noisy(32).save(tmp_path / "in.png")
    assert "without images" in run("restore", tmp_path / "empty", "--task", "denoise").err
    assert "does not exist" in run("restore", tmp_path / "no.png", "--task", "denoise").err
    same = run("restore", tmp_path / "in.png", "--task", "denoise", "--out", tmp_path)
    assert (same.code, "the input itself" in same.err) == (2, True)
    (tmp_path / "x.npz").write_bytes(b"PK nonsense")
    assert (
        "not a measurement file" in run("restore", tmp_path / "x.npz", "--out", tmp_path / "o").err
    )


def test_a_single_pixel_column(run: Run, tmp_path: Path) -> None:
    noisy(32).crop((0, 0, 1, 32)).save(tmp_path / "thin.png")
    words = ("restore", tmp_path / "thin.png", "--task", "denoise", "--out", tmp_path / "out")
    refused = run(*words)
    assert refused.code == 2  # too small to estimate noise from
    assert "give --sigma-y" in refused.err
    assert run(*words, "--sigma-y", 0.08).code == 0
    assert torch.isfinite(read_image(tmp_path / "out" / "thin.png")).all()


def test_killed_in_the_middle_and_run_again(run: Run, tmp_path: Path) -> None:
    folder, out = tmp_path / "in", tmp_path / "out"
    folder.mkdir()
    for k in range(6):
        noisy(128).save(folder / f"{k}.png")
    words = ["restore", str(folder), "--task", "denoise", "--sigma-y", "0.08", "--out", str(out)]
    process = subprocess.Popen([sys.executable, "-m", "pnpcm", *words])
    while not list(out.glob("*.result.json")):
        assert process.poll() is None
        time.sleep(0.02)
    process.kill()
    process.wait()
    finished = {p.name: p.stat().st_mtime_ns for p in out.glob("*.result.json")}
    assert 1 <= len(finished) < 6
    done = run(*words)
    assert done.code == 0, done.err
    assert done.out.count("kept: ") == len(finished)
    assert all((out / name).stat().st_mtime_ns == when for name, when in finished.items())
    expected = [f"{k}{end}" for k in range(6) for end in (".png", ".result.json")]
    assert sorted(p.name for p in out.iterdir()) == sorted(expected)


def test_steps_of_a_paper_preset_by_the_released_rule(run: Run, tmp_path: Path) -> None:
    picture().save(tmp_path / "in.png")
    words = ("restore", tmp_path / "in.png", "--task", "superres", "--dry-run", "--sigma-y", 0.05)
    rule = ("--steps", 6, "--step-rule", "released")
    done = run(*words, "--preset", "celeba-hq/superres-4", *rule)
    assert done.code == 0, done.err
    planned = json.loads(done.out)
    assert "released code's schedule of 6 steps" in planned["parameters_from"]
    assert len(planned["solver"]["sigmas"]) == 6
    refused = run(*words, "--preset", "natural/superres-4", *rule)
    assert refused.code == 2
    assert "--step-rule is 'released'" in refused.err


def test_a_reference_preset_names_the_missing_flag(run: Run, tmp_path: Path) -> None:
    picture().save(tmp_path / "in.png")
    words = ("restore", tmp_path / "in.png", "--task", "deblur", "--gaussian", "5,10", "--dry-run")
    name = ("--preset", "celeba-hq/deblur-gauss-reference", "--sigma-y", 0.05)
    refused = run(*words, *name)
    assert refused.code == 2
    assert "--reference-operator" in refused.err
    assert run(*words, *name, "--reference-operator").code == 0
