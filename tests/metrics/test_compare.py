"""Comparing pictures: numbers computed by hand and by scikit-image, files and folders, JSON."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
import typer
from numpy.typing import NDArray
from PIL import Image
from skimage.metrics import peak_signal_noise_ratio, structural_similarity
from typer.testing import CliRunner, Result

from pnpcm import cli
from pnpcm.cli.compare import compare
from pnpcm.errors import ArgumentError
from pnpcm.io.photos import read_photo
from pnpcm.metrics import compare as home
from pnpcm.metrics.compare import Comparison, compare_files, mean, pair
from pnpcm.metrics.lpips import PIP_LINE, available, lpips

Array = NDArray[Any]
APP = typer.Typer(pretty_exceptions_enable=False)
APP.command()(compare)


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")


def run(*words: object) -> Result:
    result = CliRunner().invoke(APP, [str(word) for word in words])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def picture(
    path: Path, seed: int = 0, *, side: int = 40, channels: int = 3, shift: int = 0
) -> Array:
    ramp = np.linspace(30, 200, side * side).reshape(side, side, 1)
    random = np.random.default_rng(seed).integers(0, 40, (side, side, channels))
    image = (ramp + random + shift).astype(np.uint8)
    Image.fromarray(image[..., 0] if channels == 1 else image).save(path)
    return image


def by_hand(ref: Array, out: Array) -> tuple[float, float]:
    a, b = ref / 255, out / 255
    return (
        float(peak_signal_noise_ratio(a, b, data_range=1)),
        float(structural_similarity(a, b, data_range=1, channel_axis=-1)),
    )


def test_two_files(tmp_path: Path) -> None:
    ref, out = tmp_path / "a.png", tmp_path / "b.png"
    images = picture(ref), picture(out, seed=1)
    row = compare_files(ref, out)
    psnr, ssim = by_hand(*images)
    assert row.name == "a / b"
    assert row.psnr == pytest.approx(psnr, abs=1e-4)
    assert row.ssim == pytest.approx(ssim, abs=1e-5)
    assert row.notes == ()
    if available():
        x_true, x = read_photo(ref).x, read_photo(out).x
        assert row.lpips_vgg == pytest.approx(float(lpips(x, x_true)), rel=1e-5)
        assert row.lpips_alex == pytest.approx(float(lpips(x, x_true, network="alex")), rel=1e-5)


def test_one_level_apart_by_formula(tmp_path: Path) -> None:
    picture(tmp_path / "a.png")
    picture(tmp_path / "b.png", shift=1)
    assert compare_files(tmp_path / "a.png", tmp_path / "b.png").psnr == pytest.approx(
        20 * math.log10(255), abs=1e-3
    )
    deep = np.full((40, 40, 3), 30000, np.uint16)
    tifffile.imwrite(tmp_path / "a.tif", deep, photometric="rgb")
    tifffile.imwrite(tmp_path / "b.tif", deep + 1, photometric="rgb")
    assert compare_files(tmp_path / "a.tif", tmp_path / "b.tif").psnr == pytest.approx(
        20 * math.log10(65535), abs=0.05
    )


def test_equal_images(tmp_path: Path) -> None:
    picture(tmp_path / "a.png")
    row = compare_files(tmp_path / "a.png", tmp_path / "a.png")
    assert math.isinf(row.psnr)
    assert row.ssim == pytest.approx(1)
    assert (row.to_dict()["psnr"], row.to_dict()["equal"]) == (None, True)
    assert "∞" in run(tmp_path / "a.png", tmp_path / "a.png").stdout


def test_grey_against_colour_is_said(tmp_path: Path) -> None:
    ref, out = tmp_path / "grey.png", tmp_path / "colour.png"
    grey, colour = picture(ref, channels=1), picture(out, seed=1)
    for files in ((ref, out), (out, ref)):
        row = compare_files(*files)
        assert row.psnr == pytest.approx(by_hand(np.repeat(grey, 3, 2), colour)[0], abs=1e-4)
        assert row.notes == ("grey.png is grey and compared as three equal channels",)
    assert "grey.png is grey" in run(ref, out).stdout
    picture(out, seed=1, channels=4)
    assert compare_files(out, out).notes == ("alpha is not compared",)


def test_small_images_have_what_fits_them(tmp_path: Path) -> None:
    for side, ssim, vgg, alex in ((6, 0, 0, 0), (10, 1, 0, 0), (20, 1, 1, 0), (31, 1, 1, 1)):
        picture(tmp_path / "a.png", side=side)
        picture(tmp_path / "b.png", seed=1, side=side)
        row = compare_files(tmp_path / "a.png", tmp_path / "b.png")
        assert math.isfinite(row.psnr)
        assert (row.ssim is not None) == bool(ssim)
        assert (row.lpips_vgg is not None) == bool(vgg and available())
        assert (row.lpips_alex is not None) == bool(alex and available())


def test_folders(tmp_path: Path) -> None:
    ref, out = tmp_path / "ref", tmp_path / "out"
    ref.mkdir()
    out.mkdir()
    expected = []
    for i, name in enumerate(("a", "b", "c.d")):
        pair_of = picture(ref / f"{name}.png", seed=i), picture(out / f"{name}.tif", seed=i + 9)
        expected.append(by_hand(*pair_of))
    picture(ref / "lost.png")
    picture(out / "[red]extra.PNG")
    (ref / "notes.txt").write_text("no picture")
    result = run(ref, out, "--json")
    content = json.loads(result.stdout)
    assert [row["name"] for row in content["images"]] == ["a", "b", "c.d"]
    for row, (psnr, ssim) in zip(content["images"], expected, strict=True):
        assert row["psnr"] == pytest.approx(psnr, abs=1e-4)
        assert row["ssim"] == pytest.approx(ssim, abs=1e-5)
    psnr, ssim = np.mean(expected, axis=0)
    assert content["mean"]["psnr"] == pytest.approx(psnr, abs=1e-4)
    assert content["mean"]["ssim"] == pytest.approx(ssim, abs=1e-5)
    assert content["only_ref"] == [str(ref / "lost.png")]
    assert content["only_out"] == [str(out / "[red]extra.PNG")]
    text = run(ref, out, "--no-lpips").stdout
    assert re.search(rf"mean\W+{psnr:.2f}\W+{ssim:.4f}\W+–\W+–", text)
    assert re.search(r"only in .*ref: lost\.png", text)
    assert re.search(r"only in .*out: \[red\]extra\.PNG", text)


def test_mean_by_hand() -> None:
    rows = [Comparison("a", 20.0, 0.5, None, 0.1), Comparison("b", 30.0, 0.7, 0.4, 0.3)]
    found = mean(rows)
    assert (found.psnr, found.lpips_vgg) == (25, 0.4)
    assert found.ssim == pytest.approx(0.6)
    assert found.lpips_alex == pytest.approx(0.2)


def test_without_lpips_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    picture(tmp_path / "a.png")
    monkeypatch.setattr(home, "available", lambda: False)
    monkeypatch.setattr("pnpcm.metrics.lpips.available", lambda: False)
    text = run(tmp_path / "a.png", tmp_path / "a.png").stdout
    assert PIP_LINE in text
    assert "–" in text
    content = json.loads(run(tmp_path / "a.png", tmp_path / "a.png", "--json").stdout)
    assert content["images"][0]["lpips_vgg"] is None
    assert PIP_LINE in content["hint"]
    assert PIP_LINE not in run(tmp_path / "a.png", tmp_path / "a.png", "--no-lpips").stdout


def test_bad_input(tmp_path: Path) -> None:
    a, b = tmp_path / "a.png", tmp_path / "b.png"
    picture(a)
    picture(b, side=41)
    with pytest.raises(ArgumentError, match=r"a\.png is 40×40 and .*b\.png is 41×41 pixels"):
        run(a, b)
    with pytest.raises(ArgumentError, match=r"OUT is .*none\.png, which does not exist"):
        run(a, tmp_path / "none.png")
    with pytest.raises(ArgumentError, match="one is a folder, the other is not"):
        run(tmp_path, a)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ArgumentError, match=r"no image in .*empty is named like one"):
        run(tmp_path, tmp_path / "empty")
    picture(tmp_path / "a.tif")
    with pytest.raises(ArgumentError, match=r"has a\.png and a\.tif, which agree up to the suffix"):
        pair(tmp_path, tmp_path)
    (tmp_path / "text.png").write_text("no picture")
    with pytest.raises(ArgumentError, match=r"text\.png is not a PNG"):
        run(a, tmp_path / "text.png")
    assert run(a).exit_code == 2


def test_exit_codes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    picture(tmp_path / "a.png")
    monkeypatch.setattr(cli, "app", APP)
    for name, code in (("a.png", 0), ("none.png", 2)):
        words = ["pnpcm", str(tmp_path / "a.png"), str(tmp_path / name), "--no-lpips"]
        monkeypatch.setattr(sys, "argv", words)
        with pytest.raises(SystemExit) as stop:
            cli.main()
        assert (stop.value.code or 0) == code
    assert "none.png, which does not exist" in capsys.readouterr().err


def test_the_command_is_light_to_import() -> None:
    code = "import sys, pnpcm.cli.compare; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_results_are_paired_with_the_image_that_they_are_named_after(tmp_path: Path) -> None:
    refs, outs = tmp_path / "ref", tmp_path / "out"
    refs.mkdir()
    outs.mkdir()
    for name in ("a", "b", "c.d"):
        picture(refs / f"{name}.png")
    for name in ("a.denoise", "b", "b.denoise", "c.d.denoise", "a.denoise.compare"):
        picture(outs / f"{name}.png")
    pairs = pair(refs, outs)
    names = [(one.stem, two.stem) for one, two in pairs.files]
    assert names == [("a", "a.denoise"), ("b", "b"), ("c.d", "c.d.denoise")]
    assert [p.stem for p in pairs.only_out] == ["a.denoise.compare", "b.denoise"]
    picture(outs / "a.deblur.png")
    with pytest.raises(ArgumentError, match=r"a\.deblur\.png and a\.denoise\.png, results of two"):
        pair(refs, outs)
