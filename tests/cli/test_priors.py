"""``pnpcm priors``: every command, on tiny priors with known formulas.

The last layer of a fresh network is zero, so that a prior around it only shrinks:
D(x, σ) = x σ_d²/(σ² + σ_d²), and a consistency model with σ − σ_min in place of σ.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from skimage.metrics import structural_similarity
from typer.testing import CliRunner

from ddpm import karras
from golden import TINY, gen, random_unet
from pnpcm import ConsistencyModel, DiffusionModel, GaussianPrior, catalogue, load_prior
from pnpcm.cli import app
from pnpcm.errors import ArgumentError, CheckpointError, PnPCMError, ShapeError, UnknownNameError
from pnpcm.evaluation import Images, draw, evaluate, fit, next_level
from pnpcm.networks import UNet
from pnpcm.networks.kair import DenoiserConfig, build_denoiser
from pnpcm.priors.checkpoint import export_openai, load_own, read_header, save_prior

FIXED = replace(TINY, image_size=16, model_channels=32, norm=True, patch=2)
COMPLEX = replace(TINY, in_channels=2)
INFO = {"licence": "CC0-1.0", "training": [{"minutes": 90}]}


def run(*words: object) -> str:
    """The output of a command that must succeed; exceptions are not caught."""
    result = CliRunner().invoke(app, ["priors", *map(str, words)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return str(result.output)


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Shipped: "natural". Cached: "faces" of one size, "mri" complex, and a damaged file."""
    root = tmp_path_factory.mktemp("shelf")
    folder, cache = root / "weights", root / "home" / "priors"
    folder.mkdir()
    cache.mkdir(parents=True)
    shrink = UNet(TINY)
    save_prior(ConsistencyModel(shrink), folder / "natural-cm.safetensors", info=INFO)
    save_prior(DiffusionModel(shrink), folder / "natural-edm.safetensors")
    (folder / "natural.md").write_text("# natural\n\nPhotographs.\n")
    save_prior(ConsistencyModel(random_unet(FIXED)), cache / "faces.safetensors")
    save_prior(ConsistencyModel(UNet(COMPLEX)), cache / "mri-cm.safetensors")
    (cache / "broken-cm.safetensors").write_bytes(b"junk")
    return root


@pytest.fixture(autouse=True)
def weights(shelf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the shelf for each test; the folder of its shipped priors."""
    shutil.copytree(shelf, tmp_path, dirs_exist_ok=True)
    monkeypatch.setattr(catalogue, "SHIPPED", tmp_path / "weights")
    monkeypatch.setenv("PNPCM_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path / "weights"


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """Three pictures of different sizes, with smooth and rough parts."""
    folder = tmp_path / "pictures"
    folder.mkdir()
    random = np.random.default_rng(0)
    for name, (height, width) in {"a": (20, 30), "b": (33, 17), "c": (16, 16)}.items():
        ramp = np.linspace(0, 200, height * width).reshape(height, width, 1)
        pixels = (ramp + random.integers(0, 56, (height, width, 3))).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"{name}.png")
    return folder


Denoise = Callable[[NDArray[Any], float], NDArray[Any]]


def by_hand(pictures: Path, sigma: float, denoise: Denoise, seed: int = 0) -> tuple[float, float]:
    """Mean PSNR and SSIM computed with numpy and scikit-image; noise of image i from seed + i."""
    scores = []
    for i, path in enumerate(sorted(pictures.iterdir())):
        with Image.open(path) as picture:
            x = np.asarray(picture).astype(np.float64).transpose(2, 0, 1) / 127.5 - 1
        n = torch.randn(x.shape, generator=torch.Generator().manual_seed(seed + i)).numpy()
        level = 2 * sigma / 255
        a, b = (np.clip((t + 1) / 2, 0, 1) for t in (denoise(x + level * n, level), x))
        similar = structural_similarity(a, b, data_range=1.0, channel_axis=0)
        scores.append((10 * np.log10(1 / np.mean((a - b) ** 2)), similar))
    psnr, ssim = np.mean(scores, axis=0)
    return float(psnr), float(ssim)


# --- list, info ---------------------------------------------------------------------------------


def test_list_shows_all_and_survives_damage() -> None:
    text = run("list")
    line = next(line for line in text.splitlines() if "CC0-1.0" in line)
    parameters = sum(p.numel() for p in UNet(TINY).parameters())
    for word in ("natural", "consistency", f"{parameters:,}", "any", "90", "shipped"):
        assert word in line
    faces = next(line for line in text.splitlines() if "faces" in line)
    assert "16" in faces
    assert "cached" in faces
    assert "cached, damaged" in text
    assert "damaged: " in text
    assert "gaussian" in text
    assert "hidden" not in text


def test_list_marks_what_a_shipped_file_hides(weights: Path, tmp_path: Path) -> None:
    mine = tmp_path / "home" / "priors" / "natural-cm.safetensors"
    mine.write_bytes((weights / "natural-cm.safetensors").read_bytes())
    assert run("list").count("cached, hidden") == 1


def test_info_shows_header_and_card(weights: Path) -> None:
    text = run("info", "natural")
    for word in ("consistency", "sigma_max", "model_channels", "CC0-1.0", "Photographs."):
        assert word in text
    shown = json.loads(run("info", "natural", "--kind", "edm", "--json"))
    assert (shown["kind"], shown["shipped"]) == ("edm", True)
    assert shown["header"] == read_header(weights / "natural-edm.safetensors")
    assert shown["card"].startswith("# natural")
    path = json.loads(run("info", weights / "natural-cm.safetensors", "--json"))
    assert (path["name"], path["card"]) == ("natural-cm", None)
    for name, error, words in (
        ("nothing", UnknownNameError, "known: broken, faces, mri, natural"),
        ("broken", CheckpointError, "is damaged"),
        ("gaussian", ArgumentError, "has no file"),
        ("no/such.safetensors", CheckpointError, "is not a file"),
    ):
        with pytest.raises(error, match=words):
            run("info", name)


# --- sample -------------------------------------------------------------------------------------


def test_sample_writes_a_picture_and_its_settings(tmp_path: Path) -> None:
    out = tmp_path / "new" / "grid.png"
    text = run("sample", "natural", "--kind", "edm", "--n", 5, "--size", 24, "--out", out)
    assert "35 NFE" in text  # 2 · 18 − 1
    settings = json.loads(out.with_suffix(".json").read_text())
    assert (settings["nfe"], settings["steps"], settings["shape"]) == (35, 18, [5, 3, 24, 24])
    with Image.open(out) as picture:
        side = 24 * 6  # three columns that fill 384
        assert picture.size == (3 * side + 2 * 6, 2 * (side + 20))
    assert "2 NFE" in run("sample", "natural", "--n", 1, "--steps", 2, "--out", out)
    run("sample", "faces", "--n", 2, "--out", out)
    assert json.loads(out.with_suffix(".json").read_text())["shape"] == [2, 3, 16, 16]
    run("sample", "mri", "--n", 2, "--size", 8, "--out", out)  # magnitudes are grey
    with Image.open(out) as picture:
        pixels = np.asarray(picture)[30:].astype(int)
    assert np.abs(pixels - pixels[..., :1]).max() == 0


def test_a_sample_depends_on_its_own_seed_alone() -> None:
    prior = load_prior("natural", kind="edm")
    many = draw(prior, 18, steps=3, size=8, seed=4).x  # more than one batch
    one = draw(prior, 1, steps=3, size=8, seed=4 + 17).x
    assert torch.allclose(many[17:], one, atol=1e-6)


@pytest.mark.parametrize(
    ("words", "error", "match"),
    [
        (("--out", "grid.tiff"), ArgumentError, r"expected the name of a \.png"),
        (("--out", "x.png", "--n", "0"), ArgumentError, "n must be at least 1"),
        (("--out", "x.png", "--steps", "-1"), ArgumentError, "steps must be at least 1"),
        (("--out", "x.png", "--kind", "vp"), ArgumentError, "has the kinds consistency, edm"),
        (("--out", "file/x.png"), ArgumentError, "choose another"),
    ],
)
def test_bad_wishes_of_sample(
    words: tuple[str, ...],
    error: type[PnPCMError],
    match: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(error, match=match):
        run("sample", "natural", *words)
    assert not list(tmp_path.glob("*.png"))
    with pytest.raises(ShapeError, match="trained on 16×16"):
        run("sample", "faces", "--size", 32, "--out", "x.png")


# --- evaluate -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["evaluate.json", "evaluate.md", "sigma-15.png"])
def test_scores_replace_no_file_of_the_user(name: str, pictures: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / name).write_text("{}")
    words = ("evaluate", "gaussian", "--data", pictures, "--sigma", 15, "--out", out)
    with pytest.raises(ArgumentError, match=f"{name} exists and is not an output of pnpcm priors"):
        run(*words)
    assert [p.name for p in out.iterdir()] == [name]
    (out / name).unlink()
    run(*words)
    run(*words)


def test_scores_of_a_name_are_those_worked_out_by_hand(pictures: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    text = run("evaluate", "natural", "--data", pictures, "--beside", "cbsd68", "--out", out,
               "--seed", 3)  # fmt: skip
    record = json.loads((out / "evaluate.json").read_text())
    teacher, cm = record["priors"]
    assert (teacher["kind"], cm["kind"], cm["images"]) == ("edm", "consistency", 3)

    def shrink(x: NDArray[Any], level: float, low: float = 0.0) -> NDArray[Any]:
        return x * 0.25 / (0.25 + (level - low) ** 2)

    for k, sigma in enumerate((15.0, 25.0, 50.0)):
        for prior, low in ((teacher, 0.0), (cm, 0.002)):
            score = prior["scores"][k]
            psnr, ssim = by_hand(pictures, sigma, lambda x, t, low=low: shrink(x, t, low), seed=3)
            assert score["psnr"] == pytest.approx(psnr, abs=1e-3)
            assert score["ssim"] == pytest.approx(ssim, abs=1e-4)
            assert score["level"] == pytest.approx(2 * sigma / 255)
        noisy, _ = by_hand(pictures, sigma, lambda x, t: x, seed=3)
        assert teacher["scores"][k]["psnr_noisy"] == pytest.approx(noisy, abs=1e-3)
        assert teacher["scores"][k]["consistency_error"] is None
        assert cm["scores"][k]["consistency_error"] > 0
    table = (out / "evaluate.md").read_text()
    assert "| DRUNet | published | 34.30 | 31.69 | 28.51 |" in table
    assert "DRUNet" in text
    assert record["published"]["CBM3D"]["50.0"] == 27.38
    with Image.open(out / "sigma-25.png") as picture:
        assert picture.size == (4 * 390 + 3 * 6, 260 + 20)  # clean, noisy, teacher, CM
    assert sorted(p.name for p in out.iterdir()) == [
        *("evaluate.json", "evaluate.md", "sigma-15.png", "sigma-25.png", "sigma-50.png")
    ]


@pytest.mark.parametrize("kind", ["edm", "consistency"])
def test_gaussian_priors_score_as_their_formula(kind: str, pictures: Path) -> None:
    prior = GaussianPrior(0.1, 0.4, kind=kind)
    found = evaluate(prior, Images(pictures), [0.1], unit=1, seed=0).scores[0]
    gain = 0.16 / (0.16 + 0.04)
    if kind == "consistency":
        gain = np.sqrt((0.16 + 0.002**2) / (0.16 + 0.04))
    psnr, ssim = by_hand(pictures, 25.5, lambda x, level: 0.1 + gain * (x - 0.1))
    assert found.level == pytest.approx(0.2)
    assert found.psnr == pytest.approx(psnr, abs=1e-3)
    assert found.ssim == pytest.approx(ssim, abs=1e-4)


def test_another_range_gives_the_same_scores(pictures: Path) -> None:
    """The same Gaussian for images in [0, 1]: mean and std mapped, levels halved."""
    here = evaluate(GaussianPrior(0.2, 0.4), Images(pictures), [25.0]).scores[0]
    unit = GaussianPrior(0.6, 0.2, value_range=(0, 1), sigma_min=0.001, sigma_max=40.0)
    there = evaluate(unit, Images(pictures), [25.0]).scores[0]
    assert there.level == pytest.approx(here.level / 2)
    assert there.psnr == pytest.approx(here.psnr, abs=1e-4)
    assert there.ssim == pytest.approx(here.ssim, abs=1e-5)


def test_consistency_error_is_the_distance_of_two_answers() -> None:
    prior = ConsistencyModel(random_unet(TINY))
    x = torch.rand((5, 3, 12, 16), generator=torch.Generator().manual_seed(1)) * 2 - 1
    score = evaluate(prior, x.split(1), [25.0]).scores[0]
    near = next_level(prior, score.level)
    noise = torch.stack([torch.randn((3, 12, 16), generator=gen(i)) for i in range(5)])
    apart = prior(x + score.level * noise, score.level) - prior(x + near * noise, near)
    expected = float(apart.detach().square().mean().sqrt())
    assert score.consistency_error == pytest.approx(expected, rel=1e-4)
    grid = karras(40)
    for high, low in pairwise(grid):
        assert next_level(prior, high) == pytest.approx(low, rel=1e-6)
    assert next_level(prior, 0.0021) == pytest.approx(0.002)


def test_several_priors_in_one_table(pictures: Path, weights: Path, tmp_path: Path) -> None:
    """An analytic prior, a file, and a prior of fixed size, for which images are resized."""
    out = tmp_path / "out"
    file = weights / "natural-cm.safetensors"
    text = run("evaluate", "gaussian", file, "faces", "--data", pictures, "--sigma", 0.1,
               "--unit", 1, "--limit", 2, "--out", out)  # fmt: skip
    assert "faces takes only 16×16 images" in text
    assert "the first 2 of 3 images only" in text
    record = json.loads((out / "evaluate.json").read_text())
    found = [(p["name"], p["kind"]) for p in record["priors"]]
    assert found == [
        *(("gaussian", "edm"), ("gaussian", "consistency")),
        *(("natural-cm", "consistency"), ("faces", "consistency")),
    ]
    assert record["priors"][0]["scores"][0]["level"] == pytest.approx(0.2)
    with Image.open(out / "sigma-0.1.png") as picture:
        assert picture.size == (5 * 390 + 4 * 6, 260 + 20 + 256 + 20)  # two rows of pictures


def test_complex_priors_see_magnitudes_with_a_phase(tmp_path: Path, pictures: Path) -> None:
    magnitudes = np.random.default_rng(0).integers(0, 255, (3, 16, 20), dtype=np.uint8)
    np.savez(tmp_path / "mri.npz", images=magnitudes)
    out = tmp_path / "out"
    text = run("evaluate", "mri", "--data", tmp_path / "mri.npz", "--sigma", 25, "--out", out)
    assert "mri is complex" in text
    images = Images(tmp_path / "mri.npz", channels=2)
    assert torch.equal(images.image(1), list(images)[1])
    x = images.image(1)
    assert x.shape == (1, 2, 16, 20)
    top = np.quantile(magnitudes[1], 0.995)
    expected = torch.from_numpy(magnitudes[1] / top * 0.8).float()
    assert torch.allclose(x.norm(dim=1)[0], expected, atol=1e-3)
    score = json.loads((out / "evaluate.json").read_text())["priors"][0]["scores"][0]
    level = 2 * 25 / 255
    gain = 0.25 / (0.25 + (level - 0.002) ** 2)
    values = []
    for i in range(3):
        x = images.image(i)
        n = torch.randn(x.shape[1:], generator=torch.Generator().manual_seed(i))
        gap = (gain * (x + level * n)).clamp(-1, 1) / 2 - x.clamp(-1, 1) / 2
        values.append(-10 * torch.log10(gap.square().mean()))
    assert score["psnr"] == pytest.approx(float(torch.stack(values).mean()), abs=1e-3)
    with pytest.raises(ArgumentError, match=r"has 2 channels; give an \.npz file"):
        run("evaluate", "mri", "--data", pictures)


def test_fit_scales_the_shorter_side_and_keeps_the_centre() -> None:
    x = torch.linspace(-1, 1, 40).expand(1, 1, 20, 40)
    assert torch.equal(fit(x, 20), x[..., 10:30])
    assert fit(x, 10).shape == fit(x, 30)[..., :10, :10].shape == (1, 1, 10, 10)
    assert float(fit(x, 10).mean()) == pytest.approx(0, abs=1e-5)


@pytest.mark.parametrize(
    ("words", "match"),
    [
        (("natural", "--data", "nowhere"), "expected a folder of images or an"),
        (("natural", "--data", "none.npz"), "is not a file"),
        (("natural", "--data", "broken.npz"), "cannot be read as NumPy's"),
        (("natural", "--data", "empty"), "no image was found"),
        (("natural", "--data", "cut"), "cannot be read"),
        (("natural", "--data", "pictures", "--limit", "0"), "limit must be at least 1"),
        (("natural", "--data", "pictures", "--unit", "100"), "expected 255"),
        (("natural", "--data", "pictures", "--sigma", "0"), "level 0, but this prior takes"),
        (("natural", "--data", "pictures", "--sigma", "nan"), "this prior takes levels"),
        (("natural", "--data", "pictures", "--beside", "kodak"), "unknown published table"),
        (
            ("natural", "--data", "pictures", "--beside", "cbsd68", "--sigma", "10"),
            "leave --beside out",
        ),
        (("natural", "--data", "pictures", "--out", "pictures/a.png"), "choose another"),
        (("broken", "--data", "pictures"), "is damaged"),
        (("nothing", "--data", "pictures"), "unknown prior"),
    ],
)
def test_bad_wishes_of_evaluate(
    words: tuple[str, ...],
    match: str,
    pictures: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken.npz").write_bytes(b"PK junk")
    (tmp_path / "empty").mkdir()
    (tmp_path / "cut").mkdir()
    content = (pictures / "a.png").read_bytes()
    (tmp_path / "cut" / "a.png").write_bytes(content[: len(content) // 2])
    with pytest.raises(PnPCMError, match=match):
        run("evaluate", *words)


# --- convert, export ----------------------------------------------------------------------------


def answer(prior: Any, size: int = 16) -> torch.Tensor:
    x = torch.randn((1, 3, size, size), generator=torch.Generator().manual_seed(2))
    result: torch.Tensor = prior(x, 0.4).detach()
    return result


def same(a: Any, b: Any, size: int = 16) -> bool:
    """The same weights and, up to rounding (which depends on their alignment), the same output."""
    pairs = zip(a.parameters(), b.parameters(), strict=True)
    close = torch.allclose(answer(a, size), answer(b, size), atol=1e-5)
    return close and all(torch.equal(p, q) for p, q in pairs)


def test_convert_takes_openai_files_to_ours(tmp_path: Path) -> None:
    config = replace(TINY, image_size=64, model_channels=32, norm=True, channel_mult=(1, 2))
    torch.save(random_unet(config).state_dict(), tmp_path / "edm_net.pt")
    out = tmp_path / "net.safetensors"
    text = run("convert", tmp_path / "edm_net.pt", out, "--name", "net", "--licence", "MIT")
    assert "(edm, float32)" in text
    assert read_header(out)["info"] == {"name": "net", "licence": "MIT"}
    assert same(load_prior(out), load_prior(tmp_path / "edm_net.pt"))
    size = out.stat().st_size
    with pytest.raises(ArgumentError, match=r"net\.safetensors exists.*--force"):
        run("convert", tmp_path / "edm_net.pt", out)
    run("convert", tmp_path / "edm_net.pt", out, "--kind", "consistency", "--dtype", "float16",
        "--force")  # fmt: skip
    assert out.stat().st_size < 0.6 * size
    half, full = load_prior(out), load_prior(tmp_path / "edm_net.pt", kind="consistency")
    assert half.kind == "consistency"  # type: ignore[attr-defined]
    assert torch.allclose(answer(half), answer(full), atol=1e-2)


def test_convert_stores_what_the_network_is_told(tmp_path: Path) -> None:
    torch.save(random_unet(TINY).state_dict(), tmp_path / "edm_x.pt")
    found = []
    for words, c_noise in (((), "openai"), (("--c-noise", "edm"), "edm")):
        out = tmp_path / f"{c_noise}.safetensors"
        run("convert", tmp_path / "edm_x.pt", out, *words)
        assert read_header(out)["options"]["c_noise"] == c_noise
        assert f"c_noise                {c_noise}" in run("info", out)
        found.append(load_prior(out))
    assert not torch.allclose(answer(found[0]), answer(found[1]), atol=1e-3)
    edm, pt, back = (tmp_path / name for name in ("edm.safetensors", "b.pt", "c.safetensors"))
    run("convert", edm, pt)
    run("convert", pt, back, "--network", pt.with_suffix(".json"))
    assert read_header(back) == read_header(edm)
    with pytest.raises(ArgumentError, match="c_noise must be 'openai'"):
        run("convert", tmp_path / "edm_x.pt", tmp_path / "z.safetensors", "--c-noise", "ln")
    assert not (tmp_path / "z.safetensors").exists()


def test_convert_takes_denoisers_of_kair_to_ours(tmp_path: Path, pictures: Path) -> None:
    """A DnCNN whose last layer is zero returns its input."""
    network = build_denoiser(DenoiserConfig("dncnn", 3, (4,), 3))
    with torch.no_grad():
        network.model[-1].weight.zero_()
        network.model[-1].bias.zero_()
    source, out = tmp_path / "dncnn_25.pth", tmp_path / "home" / "priors" / "dn-edm.safetensors"
    torch.save(network.state_dict(), source)
    assert "(edm, float32)" in run("convert", source, out, "--licence", "MIT")
    line = next(line for line in run("list").splitlines() if " dn " in line)
    for word in ("edm", "371", "any", "MIT", "cached"):  # 112 + 148 + 111 parameters
        assert word in line
    for prior in (source, "dn"):
        text = run("evaluate", prior, "--data", pictures, "--sigma", 25, "--out", tmp_path / "o")
        assert "25" in text
        record = json.loads((tmp_path / "o" / "evaluate.json").read_text())["priors"][0]
        noisy, _ = by_hand(pictures, 25.0, lambda x, level: x)
        assert record["scores"][0]["psnr"] == pytest.approx(noisy, abs=1e-3)
        assert record["scores"][0]["level"] == pytest.approx(25 / 255)
    with pytest.raises(ArgumentError, match="this prior takes levels above"):
        run("evaluate", "dn", "--data", pictures, "--sigma", 50)
    with pytest.raises(CheckpointError, match="a denoiser without scalings"):
        run("convert", "dn", tmp_path / "back.pt")
    with pytest.raises(ArgumentError, match="leave c_noise out"):
        run("convert", source, tmp_path / "y.safetensors", "--c-noise", "edm")


def test_convert_there_and_back_gives_the_same_prior(tmp_path: Path) -> None:
    """Value range, levels, patches and metadata of a .pt file are stored in a second file."""
    options = {"sigma_max": 20.0, "sigma_data": 0.4, "any_size": True}
    prior = DiffusionModel(random_unet(FIXED), **options)  # type: ignore[arg-type]
    source, pt, back = (tmp_path / name for name in ("a.safetensors", "b.pt", "c.safetensors"))
    save_prior(prior, source, info=INFO)
    run("convert", source, pt)
    run("convert", pt, back, "--network", pt.with_suffix(".json"))
    assert read_header(back) == read_header(source)
    assert same(load_prior(back), load_own(source), 20)
    with pytest.raises(ArgumentError, match=r"b\.pt exists"):
        run("convert", source, pt)
    pt.unlink()
    with pytest.raises(ArgumentError, match=r"b\.json exists"):
        run("convert", source, pt)
    run("convert", "natural", pt, "--kind", "edm", "--force")
    assert json.loads(pt.with_suffix(".json").read_text())["kind"] == "edm"


def test_convert_reads_wishes_about_the_network(tmp_path: Path) -> None:
    config = replace(TINY, model_channels=32, norm=True, middle_attention=True,
                     num_head_channels=16)  # fmt: skip
    export_openai(ConsistencyModel(random_unet(config)), tmp_path / "x.pt")
    out = tmp_path / "new" / "x.safetensors"
    run("convert", tmp_path / "x.pt", out, "--network", '{"num_head_channels": 16}')
    assert read_header(out)["network"]["num_head_channels"] == 16


@pytest.mark.parametrize(
    ("words", "match"),
    [
        (("natural", "x.bin"), r"ending in \.safetensors or \.pt"),
        (("natural", "x.safetensors", "--dtype", "int8"), "dtype must be one of"),
        (("natural", "x.pt", "--dtype", "float16"), "in float32"),
        (("x.pt", "y.pt"), "written from a pnpcm prior"),
        (("x.pt", "y.safetensors"), "is not a file"),
        (("junk.pt", "y.safetensors"), "is damaged"),
        (("junk.pt", "y.safetensors", "--network", "[1]"), "expected JSON like"),
        (("junk.pt", "y.safetensors", "--network", "none.json"), "expected JSON like"),
        (("junk.pt", "y.safetensors", "--network", "list.json"), "expected a JSON object"),
        (("natural", "y.safetensors", "--network", "{}"), "leave --network out"),
        (("natural", "y.safetensors", "--c-noise", "edm"), "leave --c-noise out"),
        (
            ("junk.pt", "y.safetensors", "--network", '{"network": {}}', "--c-noise", "edm"),
            "describes the whole prior; leave --c-noise out",
        ),
        (("natural", "y.safetensors", "--kind", "vp"), "has the kinds consistency, edm"),
        (("gaussian", "y.safetensors"), "has no file"),
    ],
)
def test_bad_wishes_of_convert(
    words: tuple[str, ...], match: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "junk.pt").write_bytes(b"junk")
    (tmp_path / "list.json").write_text("[1]")
    with pytest.raises(PnPCMError, match=match):
        run("convert", *words)
    assert not list(tmp_path.glob("y.*"))


def test_export_writes_a_folder_that_load_prior_reads(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "natural-cm"
    assert str(folder) in run("export", "natural", folder)
    assert "Photographs." in (folder / "README.md").read_text()
    assert same(load_prior(folder), load_prior("natural"))
    assert "Photographs." in run("info", folder)
    with pytest.raises(ArgumentError, match="not empty"):
        run("export", "natural", folder, "--kind", "edm")
    run("export", "natural", folder, "--kind", "edm", "--force")
    assert load_prior(folder).kind == "edm"  # type: ignore[attr-defined]
    with pytest.raises(CheckpointError, match="is damaged"):
        run("export", "broken", tmp_path / "x")
    assert not (tmp_path / "x").exists()


def test_errors_are_one_sentence_and_exit_code_two() -> None:
    command = [sys.executable, "-m", "pnpcm", "priors", "info", "nothing"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=dict(os.environ)
    )
    assert done.returncode == 2
    assert done.stderr.startswith("pnpcm: unknown prior 'nothing'")
    assert done.stderr.count("\n") == 1
