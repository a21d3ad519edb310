"""``pnpcm restore`` and ``simulate``: images from files of many kinds, and error messages."""

import json
import os
import struct
import subprocess
import sys
import time
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw, ImageFilter

import pnpcm as package
from pnpcm.cli import main
from pnpcm.errors import ArgumentError
from pnpcm.io.files import read_image
from pnpcm.metrics import psnr
from pnpcm.problems.measurement import Measurement, write_measurement

DATA = Path(package.__file__).parent / "data"
LARGE = "{'descr': '<f8', 'fortran_order': False, 'shape': (999999, 999999, 9), }"
"""Header of an array of 72 TB."""


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
    assert "1 network evaluation\n" in done.out
    restored = tmp_path / "out" / "in.denoise.png"
    assert done.out.splitlines()[-1] == f"done: {restored}"
    assert score(restored, picture()) > score(tmp_path / "in.png", picture()) + 2
    record = json.loads((tmp_path / "out" / "in.denoise.result.json").read_text())
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
    stale = tmp_path / "out" / ".pnpcm-0123456789abcdef"
    stale.mkdir()
    (stale / "b.png").write_text("left by a killed run")
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
    left = sorted(p.name for p in (tmp_path / "out").iterdir())
    assert left == ["good.denoise.png", "good.denoise.result.json"]
    assert done.out.splitlines()[-1] == f"1 done, 2 failed; results in {tmp_path / 'out'}"


def test_bad_files_of_any_kind_are_named_and_the_rest_is_done(run: Run, tmp_path: Path) -> None:
    folder, out = tmp_path / "in", tmp_path / "out"
    folder.mkdir()
    noisy(24).save(folder / "good.png")
    (folder / "loop.png").symlink_to(folder / "loop.png")
    (folder / "nowhere.png").symlink_to(folder / "not there.png")
    Path(os.fsdecode(os.fsencode(folder) + b"/odd\xff.png")).write_bytes(
        (folder / "good.png").read_bytes()
    )
    size = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0)  # 3.6 gigapixels in 33 bytes
    chunk = b"IHDR" + size
    crc = struct.pack(">I", zlib.crc32(chunk))
    (folder / "huge.png").write_bytes(b"\x89PNG\r\n\x1a\n" + b"\0\0\0\x0d" + chunk + crc)
    for name, header in (("token", "{'descr': ("), ("deep", "(" * 9000), ("large", LARGE)):
        with zipfile.ZipFile(folder / f"{name}.npz", "w") as file:
            text = header.encode().ljust(117) + b"\n"
            head = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text))
            file.writestr("pnpcm.npy", head + text)
    os.mkfifo(folder / "pipe.png")  # is not read
    words = ("restore", folder, "--task", "denoise", "--out", out)
    done = run(*words)
    assert done.code == 1
    lines = [line for line in done.err.splitlines() if line.startswith("pnpcm: ")]
    bad = ("deep.npz", "huge.png", "large.npz", "loop.png", "nowhere.png", "odd\\xff.png", "token")
    assert len(lines) == len(bad)
    for line, name in zip(lines, bad, strict=True):
        assert f"{folder}/{name}" in line
    assert "Traceback" not in done.err
    assert sorted(p.name for p in out.iterdir()) == [
        "good.denoise.png",
        "good.denoise.result.json",
    ]
    rows = [json.loads(line) for line in run(*words, "--json").out.splitlines()]
    assert [row["status"] for row in rows].count("failed") == len(bad)


def test_several_measurements_in_a_file_are_refused(run: Run, tmp_path: Path) -> None:
    task = package.problems.Denoise()
    y = torch.zeros(2, 3, 16, 16)
    write_measurement(tmp_path / "two.npz", Measurement(y, task, 0.1))
    done = run("restore", tmp_path / "two.npz", "--out", tmp_path / "out")
    assert done.code == 2
    assert "two.npz has 2 measurements, but a result is one image" in done.err
    assert not (tmp_path / "out").exists()
    both = package.restore(y, task, "gaussian", sigma_y=0.1)
    with pytest.raises(ArgumentError, match=r"x has 2 images, but .*two\.png is one"):
        both.save(tmp_path / "two.png")


def test_the_same_name_of_another_folder_is_refused(run: Run, tmp_path: Path) -> None:
    words = ("restore", "--task", "denoise", "--out", tmp_path / "out")
    for folder, std in (("1", 10), ("2", 20)):
        (tmp_path / folder).mkdir()
        noisy(24, std).save(tmp_path / folder / "a.png")
    assert run(*words, tmp_path / "1").code == 0
    before = (tmp_path / "out" / "a.denoise.png").read_bytes()
    done = run(*words, tmp_path / "2")
    assert done.code == 2
    assert f"is a result of {tmp_path}/1/a.png" in done.err
    assert (tmp_path / "out" / "a.denoise.png").read_bytes() == before


def test_simulate_writes_a_file_for_each_of_two_equal_names(run: Run, tmp_path: Path) -> None:
    for name in ("a.png", "a.tif"):
        picture(24).save(tmp_path / name)
    words = (tmp_path / "a.png", tmp_path / "a.tif", "--task", "denoise")
    assert run("simulate", *words, "--out", tmp_path / "out").code == 0
    assert {p.name for p in (tmp_path / "out").glob("*.npz")} == {"a_png.npz", "a_tif.npz"}


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
        assert score(out / "in.inpaint.png", picture()) > before + 6


def test_errors_of_masks_and_references_name_them(run: Run, tmp_path: Path) -> None:
    photo, out = tmp_path / "in.png", tmp_path / "out"
    noisy(32).save(photo)
    (tmp_path / "empty.png").touch()
    Image.new("L", (32, 32)).save(tmp_path / "black.png")
    Image.new("L", (32, 32), 255).save(tmp_path / "white.png")
    noisy(32).save(tmp_path / "a.gif")
    said = {}
    for name in ("empty.png", "black.png", "white.png", "a.gif", "no.png"):
        words = ("--task", "inpaint", "--mask", tmp_path / name, "--out", out)
        done = run("restore", photo, *words)
        assert (done.code, done.err.count("\n")) == (2, 1)
        said[name] = done.err
    assert f"in.png: mask {tmp_path}/empty.png is empty (0 bytes)" in said["empty.png"]
    assert "black.png marks no pixel; paint white what is to be filled" in said["black.png"]
    assert "white.png marks every pixel; some must stay (black in a mask)" in said["white.png"]
    assert f"in.png: mask {tmp_path}/a.gif is a GIF file, which pnpcm does not" in said["a.gif"]
    assert said["no.png"] == (
        f"pnpcm: --mask is {tmp_path}/no.png, which does not exist; check the path\n"
    )
    other = run("restore", photo, "--task", "inpaint", "--mask-color", "#ff00ff", "--out", out)
    assert "in.png marks no pixel; give the colour of the pixels to be filled" in other.err
    words = ("--task", "denoise", "--reference", tmp_path / "empty.png", "--out", out)
    assert f"in.png: reference {tmp_path}/empty.png is empty" in run("restore", photo, *words).err
    assert not out.exists()


@pytest.mark.parametrize("bits", [8, 16])
def test_known_pixels_are_kept_bit_for_bit(run: Run, tmp_path: Path, bits: int) -> None:
    """RGBA of 8 bits, grey of 16 bits, each with all values of its range."""
    g = np.random.default_rng(0)
    if bits == 8:
        values = np.dstack([np.asarray(picture()), g.integers(0, 256, (64, 64), np.uint8)])
        values[:16, :16] = np.arange(256, dtype=np.uint8).reshape(16, 16, 1)
    else:
        values = np.asarray(picture().convert("L"), np.uint16) * 257
        values[:16] = g.integers(0, 65536, (16, 64), np.uint16)
    Image.fromarray(values).save(tmp_path / "in.png")
    mask = Image.new("L", (64, 64))
    ImageDraw.Draw(mask).line((5, 5, 58, 40, 20, 60), fill="white", width=3)
    mask.save(tmp_path / "mask.png")
    words = ("restore", tmp_path / "in.png", "--task", "inpaint", "--mask", tmp_path / "mask.png")
    done = run(*words, "--out", tmp_path / "out", "--json")
    assert done.code == 0, done.err
    with Image.open(tmp_path / "out" / "in.inpaint.png") as restored:
        found = np.asarray(restored)
    assert (found.dtype, found.shape) == (values.dtype, values.shape)
    hole = np.asarray(mask) > 0
    assert np.array_equal(found[~hole], values[~hole])
    assert not np.array_equal(found[hole], values[hole])
    if bits == 8:
        assert np.array_equal(found[..., 3], values[..., 3])
    record = json.loads(done.out)
    assert (record["sigma_y"], record["check"]["residual"]) == (0, 0)
    assert "known pixels are exact" in record["sigma_y_from"]


def test_inpainting_estimates_the_noise_only_when_asked(run: Run, tmp_path: Path) -> None:
    noisy().save(tmp_path / "in.png")
    mask = Image.new("L", (64, 64))
    ImageDraw.Draw(mask).rectangle((20, 20, 40, 22), fill="white")
    mask.save(tmp_path / "mask.png")
    words = ("restore", tmp_path / "in.png", "--task", "inpaint", "--mask", tmp_path / "mask.png")
    words += ("--dry-run",)
    default, auto, given = (
        json.loads(run(*words, *more).out)
        for more in ((), ("--sigma-y", "auto"), ("--sigma-y", 0.03))
    )
    assert (default["sigma_y"], given["sigma_y"]) == (0, 0.03)
    assert auto["sigma_y"] == pytest.approx(20 / 255, rel=0.25)  # the noise that was added
    assert auto["sigma_y_from"].startswith("estimated")
    denoise = ("restore", tmp_path / "in.png", "--task", "denoise", "--dry-run")
    plan = json.loads(run(*denoise).out)
    assert plan["sigma_y"] == pytest.approx(20 / 255, rel=0.25)
    assert plan["operator"] == "Denoising()"


def test_jpeg_reads_its_own_tables(run: Run, tmp_path: Path) -> None:
    picture().save(tmp_path / "in.jpg", quality=8)
    out = tmp_path / "out"
    done = run("restore", tmp_path / "in.jpg", "--task", "jpeg", "--out", out)
    assert done.code == 0, done.err
    assert score(out / "in.jpeg.png", picture()) > score(tmp_path / "in.jpg", picture())
    picture().save(tmp_path / "in.png")
    refused = run("restore", tmp_path / "in.png", "--task", "jpeg", "--out", tmp_path / "other")
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
    restored = tmp_path / "out" / "in.deblur.png"
    assert score(restored, truth) > score(tmp_path / "in.png", truth) + 1


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
    with Image.open(out / f"clean.{task}.png") as result:
        assert result.size == (47, 47)
    record = json.loads((out / f"clean.{task}.result.json").read_text())
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
    with Image.open(out / "rgba.denoise.png") as a, Image.open(out / "grey.denoise.tif") as b:
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
    assert score(Path("out/in.custom.png"), picture(32)) > before + 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--task", "denoize"), "did you mean 'denoise'"),
        (("--task", "denoise", "--factor", 4), "does not take factor"),
        (("--task", "deblur", "--gaussian", "5"), "expected two numbers"),
        (("--task", "deblur", "--gaussian", "9,2", "--motion", "9,2"), "kernel, gaussian and"),
        (("--task", "deblur", "--gaussian", "9.5,2"), "--gaussian is (9.5, 2.0), expected a whole"),
        (("--task", "deblur", "--motion", "-5,0"), "--motion is (-5.0, 0.0), expected a length of"),
        (("--task", "inpaint"), "needs --mask"),
        (("--task", "phase-retrieval"), "a measurement file"),
        ((), "give --task, one of denoise, inpaint,"),
        (("--task", "denoise", "--sigma-y", "loud"), "expected auto or a number"),
        (("--task", "denoise", "--sigma-y", "25"), "25 of 255 is 0.098: write 0.098 or"),
        (("--task", "denoise", "--sigma-y", "25/0"), "expected auto or a number"),
        (("--task", "denoise", "--format", "gif"), "expected png"),
        (("--task", "denoise", "--set", "rho=1"), "unknown hyperparameter 'rho'"),
        (("--task", "denoise", "--prior", "nature"), "did you mean 'natural'"),
        (("--task", "denoise", "--preset", "nowhere.json"), "cannot be read as a preset file"),
    ],
)
def test_bad_words(run: Run, tmp_path: Path, words: tuple[object, ...], message: str) -> None:
    noisy(32).save(tmp_path / "in.png")
    done = run("restore", tmp_path / "in.png", *words, "--out", tmp_path / "out")
    assert done.code == 2
    assert message in done.err
    assert done.err.count("\n") == 1
    assert not list((tmp_path / "out").glob("*"))


def test_the_example_for_a_missing_kernel_can_be_run(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    noisy(32).save("photo.jpg")
    done = run("restore", "photo.jpg", "--task", "deblur")
    assert done.code == 2
    assert done.err.count("\n") == 1
    for option in ("--gaussian SIZE,SIGMA", "--motion LENGTH,ANGLE", "--kernel FILE.npy"):
        assert option in done.err
    _, *words = done.err.partition("for example ")[2].partition(" (")[0].split()
    assert words[:4] == ["restore", "photo.jpg", "--task", "deblur"]
    planned = run(*words, "--dry-run")
    assert planned.code == 0, planned.err
    assert json.loads(planned.out)["options"]["gaussian"] == [9, 2]


def test_bad_places(run: Run, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    noisy(32).save(tmp_path / "in.png")
    before = (tmp_path / "in.png").read_bytes()
    assert "without images" in run("restore", tmp_path / "empty", "--task", "denoise").err
    assert "does not exist" in run("restore", tmp_path / "no.png", "--task", "denoise").err
    same = run("restore", tmp_path / "in.png", "--task", "denoise", "--out", tmp_path / "in.png")
    assert (same.code, "is an input" in same.err) == (2, True)
    assert (tmp_path / "in.png").read_bytes() == before
    (tmp_path / "x.npz").write_bytes(b"PK nonsense")
    done = run("restore", tmp_path / "x.npz", "--out", tmp_path / "o")
    assert "cannot be read as a measurement file" in done.err
    for names, words in (
        ("a", "it holds a; give such"),
        ("kspace", "it holds kspace; k-space is read"),
    ):
        np.savez(tmp_path / "x.npz", **{names: np.ones(3)})
        done = run("restore", tmp_path / "x.npz", "--out", tmp_path / "o")
        assert "x.npz is not a measurement file of `pnpcm simulate`, " + words in done.err


def test_a_single_pixel_column(run: Run, tmp_path: Path) -> None:
    noisy(32).crop((0, 0, 1, 32)).save(tmp_path / "thin.png")
    words = ("restore", tmp_path / "thin.png", "--task", "denoise", "--out", tmp_path / "out")
    refused = run(*words)
    assert refused.code == 2  # too small to estimate noise from
    assert "give --sigma-y" in refused.err
    assert run(*words, "--sigma-y", 0.08).code == 0
    assert torch.isfinite(read_image(tmp_path / "out" / "thin.denoise.png")).all()


def test_killed_in_the_middle_and_run_again(run: Run, tmp_path: Path) -> None:
    folder, out = tmp_path / "in", tmp_path / "out"
    folder.mkdir()
    for k in range(6):
        noisy(128).save(folder / f"{k}.png")
    words = ["restore", str(folder), "--task", "denoise", "--sigma-y", "0.08", "--out", str(out)]
    process = subprocess.Popen([sys.executable, "-m", "pnpcm", *words])
    while not list(out.glob("[!.]*.result.json")):  # temporary names begin with a dot
        assert process.poll() is None
        time.sleep(0.02)
    process.kill()
    process.wait()
    finished = {p.name: p.stat().st_mtime_ns for p in out.glob("[!.]*.result.json")}
    assert 1 <= len(finished) < 6
    done = run(*words)
    assert done.code == 0, done.err
    assert done.out.count("kept: ") == len(finished)
    assert all((out / name).stat().st_mtime_ns == when for name, when in finished.items())
    expected = [f"{k}.denoise{end}" for k in range(6) for end in (".png", ".result.json")]
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


# names of outputs --------------------------------------------------------------------------------
def test_results_of_two_tasks_stay_side_by_side(run: Run, tmp_path: Path) -> None:
    noisy(32).save(tmp_path / "in.png")
    words = ("restore", tmp_path / "in.png", "--out", tmp_path)
    assert run(*words, "--task", "denoise").code == 0
    assert run(*words, "--task", "deblur", "--gaussian", "5,1", "--steps", 1).code == 0
    names = {p.name for p in tmp_path.iterdir()}
    assert {"in.png", "in.denoise.png", "in.deblur.png", "in.denoise.result.json"} <= names
    assert run(*words, "--task", "denoise").out.startswith("kept: ")
    again = run("restore", tmp_path, "--task", "denoise", "--out", tmp_path, "--json")
    assert [json.loads(line)["status"] for line in again.out.splitlines()] == ["kept"]


def test_out_can_be_a_file(run: Run, tmp_path: Path) -> None:
    for name in ("a", "b"):
        noisy(32).save(tmp_path / f"{name}.png")
    result = tmp_path / "new" / "result.jpg"
    words = ("restore", tmp_path / "a.png", "--task", "denoise", "--out", result)
    done = run(*words)
    assert done.code == 0, done.err
    assert sorted(p.name for p in result.parent.iterdir()) == ["result.jpg", "result.result.json"]
    with Image.open(result) as picture_:
        assert picture_.format == "JPEG"
    assert run(*words).out.startswith("kept: ")
    before = result.read_bytes()
    assert run(*words, "--sigma-y", 0.2).out.splitlines()[-1] == f"done: {result}"
    assert result.read_bytes() != before  # another request for the same input and task
    refusals = {
        "not an earlier result": ("restore", tmp_path / "b.png", *words[2:]),
        "belongs to result.jpg": (*words[:-1], result.with_suffix(".png")),
        "2 inputs; give a folder": ("restore", tmp_path / "b.png", *words[1:]),
        "--format is 'png'": (*words, "--format", "png"),
        "expected a folder or a file": (*words[:-1], tmp_path / "result.gif"),
    }
    before = result.read_bytes()
    for sentence, refused in refusals.items():
        done = run(*refused)
        assert (done.code, sentence in done.err) == (2, True), done.err
    assert result.read_bytes() == before


def test_masks_of_a_folder_by_name(run: Run, tmp_path: Path) -> None:
    folder, masks = tmp_path / "in", tmp_path / "masks"
    folder.mkdir()
    masks.mkdir()
    for k in range(3):
        scribbled, mask = picture(32), Image.new("L", (32, 32))
        for each, colour in ((scribbled, "#ff00ff"), (mask, "white")):
            ImageDraw.Draw(each).line((0, 8 * k + 4, 31, 8 * k + 4), fill=colour, width=2)
        scribbled.save(folder / f"{k}.png")
        if k < 2:
            mask.save(masks / f"{k}.png")
    (masks / "0.txt").write_text("not a mask")
    Image.new("L", (32, 32)).save(masks / "1.tif")
    out = tmp_path / "out"
    words = ("restore", folder, "--task", "inpaint", "--mask", masks, "--out", out, "--json")
    rows = [json.loads(line) for line in run(*words).out.splitlines()]
    assert [row["status"] for row in rows] == ["done", "failed", "failed"]
    assert "1.png, 1.tif" in rows[1]["error"]
    assert "none" in rows[2]["error"]
    assert score(out / "0.inpaint.png", picture(32)) > score(folder / "0.png", picture(32)) + 6
    (folder / "truth.png").unlink()
    Image.open(masks / "0.png").rotate(180).save(masks / "0.png")  # another mask: computed again
    (masks / "1.tif").unlink()
    rows = [json.loads(line) for line in run(*words).out.splitlines()]
    assert [row["status"] for row in rows] == ["done", "done", "failed"]


def test_subfolders(run: Run, tmp_path: Path) -> None:
    inner = tmp_path / "in" / "2019" / "may"
    inner.mkdir(parents=True)
    noisy(32).save(inner / "a.png")
    words = ("restore", tmp_path / "in", "--task", "denoise", "--out", tmp_path / "out")
    refused = run(*words)
    assert (refused.code, "--recursive" in refused.err) == (2, True)
    noisy(32).save(tmp_path / "in" / "a.png")
    assert run(*words, "--recursive").code == 0
    found = sorted(p.relative_to(tmp_path / "out") for p in (tmp_path / "out").rglob("*.png"))
    assert found == [Path("2019/may/a.denoise.png"), Path("a.denoise.png")]


def test_pictures_of_other_formats_are_skipped_with_a_sentence(run: Run, tmp_path: Path) -> None:
    noisy(32).save(tmp_path / "a.png")
    noisy(32).save(tmp_path / "b.gif")
    (tmp_path / "c.HEIC").write_bytes(b"\0\0\0\x18ftypheic")
    words = ("restore", tmp_path, "--task", "denoise", "--out", tmp_path / "out")
    done = run(*words)
    assert done.code == 0
    skipped = [line for line in done.err.splitlines() if line.startswith("pnpcm: skipped: ")]
    assert len(skipped) == 2
    assert "magick" in skipped[0]
    assert "heif-convert" in skipped[1]
    rows = [json.loads(line) for line in run(*words, "--json").out.splitlines()]
    assert [row["status"] for row in rows] == ["skipped", "skipped", "kept"]
    refused = run("restore", tmp_path / "c.HEIC", *words[2:])
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert "is a HEIC file" in refused.err


# the picture of before and after, notes, progress -------------------------------------------------
def test_compare_shows_the_bicubic_enlargement_and_the_result(run: Run, tmp_path: Path) -> None:
    picture(64).save(tmp_path / "in.png")
    out = tmp_path / "out"
    words = ("restore", tmp_path / "in.png", "--task", "superres", "--steps", 1, "--out", out)
    done = run(*words, "--compare")
    assert done.code == 0, done.err
    assert "note: factor 4 (default)" in done.out
    files = ["in.superres.png", "in.superres.compare.png"]
    assert json.loads((out / "in.superres.result.json").read_text())["files"] == files
    assert done.out.splitlines()[-1] == f"done: {out / files[0]}, {out / files[1]}"
    with Image.open(out / files[0]) as result, Image.open(out / files[1]) as both:
        after = np.asarray(result, np.float64)
        sheet = np.asarray(both, np.float64)
    assert sheet.shape == (256 + 19, 2 * 256 + 6, 3)  # labels of 13 · 3 / 2 pixels, a gap of 6
    assert np.abs(sheet[-256:, -256:] - after).max() <= 1  # rounded in other precisions
    enlarged = np.asarray(picture(64).resize((256, 256), Image.Resampling.BICUBIC), np.float64)
    error = sheet[-256:, :256] - enlarged  # Pillow and torch have different cubics
    assert np.sqrt(np.square(error).mean()) < 3
    assert (sheet[:, 256:262].min((0, 2)) == [255, 255, 0, 0, 255, 255]).all()  # the line
    assert (sheet[:19, :256] < 100).any()  # a label
    assert run(*words).code == 0  # without --compare the picture is removed
    assert sorted(p.name for p in out.iterdir()) == [files[0], "in.superres.result.json"]
    assert json.loads(run(*words, "--factor", 4, "--dry-run").out)["notes"] == []


def test_progress_is_one_line_per_input_without_a_terminal(run: Run, tmp_path: Path) -> None:
    for name in ("a", "b"):
        noisy(32).save(tmp_path / f"{name}.png")
    inputs = (tmp_path / "a.png", tmp_path / "b.png")
    words = ("restore", *inputs, "--task", "denoise", "--steps", 2, "--out", tmp_path / "out")
    lines = ["restore 1 of 2: a.png, step 1 of 2", "restore 2 of 2: b.png, step 1 of 2"]
    assert run(*words).err.splitlines() == lines
    assert run(*words, "--seed", 1, "--json").err == ""


def test_progress_on_a_terminal_leaves_stdout_alone(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes stderr for a terminal
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    noisy(32).save(tmp_path / "in.png")
    words = ("restore", tmp_path / "in.png", "--task", "denoise", "--steps", 2)
    done = run(*words, "--out", tmp_path / "out", "--json")
    assert json.loads(done.out)["status"] == "done"
    for text in ("loading prior natural", "in.png, step 1 of 2", "in.png, step 2 of 2"):
        assert text in done.err


def test_simulate_does_not_replace_its_input(run: Run, tmp_path: Path) -> None:
    picture(32).save(tmp_path / "clean.png")
    before = (tmp_path / "clean.png").read_bytes()
    done = run("simulate", tmp_path / "clean.png", "--task", "superres", "--out", tmp_path)
    assert done.code == 2
    assert "the folder of an input" in done.err
    assert (tmp_path / "clean.png").read_bytes() == before


def test_an_empty_folder_among_inputs_is_named_and_the_rest_is_done(
    run: Run, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    for name in ("a", "b"):
        noisy(32).save(tmp_path / f"{name}.png")
    paths = (tmp_path / "a.png", tmp_path / "empty", tmp_path / "b.png")
    words = ("--task", "denoise", "--out", tmp_path / "out")
    done = run("restore", *paths, *words)
    sentence = f"pnpcm: input {tmp_path}/empty is a folder without images"
    assert (done.code, sentence in done.err) == (1, True)
    assert {p.name for p in (tmp_path / "out").glob("*.png")} == {"a.denoise.png", "b.denoise.png"}
    rows = [json.loads(line) for line in run("restore", *paths, *words, "--json").out.splitlines()]
    statuses = {Path(row["input"]).name: row["status"] for row in rows}
    assert statuses == {"empty": "failed", "a.png": "kept", "b.png": "kept"}
    one = run("restore", *paths[:2], "--task", "denoise", "--dry-run")
    assert (one.code, json.loads(one.out)["task"], sentence in one.err) == (1, "denoise", True)
    assert run("restore", paths[1], paths[1], *words).code == 2
