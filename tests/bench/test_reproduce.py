"""Tables of the paper: specs that can be run, published numbers beside means of stored rows."""

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from pnpcm.bench import Store, bench, reproduce
from pnpcm.bench.beside import beside, sections, tables
from pnpcm.bench.comparisons import OPPOSITE, PAIRS, SAME, UNDECIDED, comparisons
from pnpcm.bench.paper import PUBLISHED
from pnpcm.bench.reproduce import (
    KNEES,
    PAPER,
    PHOTO_TASKS,
    SCANS,
    TABLES,
    domains,
    sensitivity,
    specs,
    table_of,
)
from pnpcm.bench.run import finished
from pnpcm.bench.scans import Scans
from pnpcm.bench.scores import score
from pnpcm.bench.sections import markdown
from pnpcm.bench.sensitivity import CHANGES, DRAWS
from pnpcm.bench.spec import DataSet, MethodRow, Spec, TaskRow
from pnpcm.cli import app
from pnpcm.errors import ArgumentError, UnknownNameError
from pnpcm.mri import phantoms, write_simulated
from pnpcm.networks import UNet, UNetConfig
from pnpcm.presets import PRESETS
from pnpcm.priors import ConsistencyModel, DiffusionModel
from pnpcm.priors.checkpoint import save_prior
from pnpcm.solvers import PnPCMConfig


def test_published_numbers_by_hand() -> None:
    """Cells read off the tables of the paper."""
    cells = {(p.table, p.data, p.task, p.method, p.nfe, p.sigma_y): p for p in PUBLISHED}
    assert len(cells) == len(PUBLISHED) == 48 + 22 + 16 + 12 + 6 + 18
    ours = cells["main", "celeba-hq", "deblur-gauss", "PnP-CM", 4, 0.05]
    assert (ours.psnr, ours.second) == (28.94, 0.249)
    assert cells["main", "lsun-bedroom", "phase-retrieval", "DPnP", 2923, 0.05].psnr == 18.55
    assert cells["main", "fastmri-pdfs", "r8", "DDS", 100, 0.05].second == 0.740
    assert cells["momentum", "fastmri-pd", "r8", "momentum", 20, 0.05].second == 0.879
    assert cells["nfe-noise", "celeba-hq", "inpaint-70", "PnP-CM", 2, 0.025].psnr == 28.77


@pytest.mark.parametrize("table", [*TABLES, "all"])
def test_every_table_has_specs_without_any_data_folder(
    table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PNPCM_DATA", str(tmp_path / "none"))
    found = specs(table)
    assert found or table in ("momentum", "theorem")  # scans need the data folder; no rows
    for spec in found:
        rows = list(spec.rows(limit=1))
        assert rows
        assert {row.prior for row in rows} == {"natural"}


def test_the_data_are_called_by_their_name_and_say_what_they_stand_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PNPCM_DATA", str(tmp_path))
    found = {one.name: one for one in domains()}
    assert list(found) == ["fairface", "cbsd68", "ixi", "t1ce"]
    assert found["fairface"].data.words == "FairFace, 64×64 (stands for CelebA-HQ)"
    for one in found.values():
        for spec in TABLES["main"](one):
            assert list(spec.data) == [one.name]
            assert "celeba" not in spec.name
            assert "(stands for " in spec.words
    (only,) = domains(domain="fastmri-pdfs")
    assert only.name == "t1ce"
    (faces,) = (s for s in TABLES["main"](found["fairface"]) if "inpaint-70" in s.tasks)
    assert faces.methods["CoSIGN"].control_for("faces", "inpaint-70") == "inpaint-70"
    assert "CoSIGN" not in TABLES["main"](found["cbsd68"])[0].methods  # has no ControlNet
    monkeypatch.setenv("PNPCM_DATA", str(tmp_path / "none"))
    with pytest.raises(ArgumentError, match="domain is 'celeba-hq', which needs PNPCM_DATA"):
        domains(domain="celeba-hq")


def test_with_a_checkpoint_the_presets_and_operators_are_those_of_the_paper(tmp_path: Path) -> None:
    found = {s.name: s for s in specs("main", prior="model.pt", data=str(tmp_path))}
    deblur = found["main-celeba-hq-deblur-gauss"]
    assert deblur.tasks["deblur-gauss"].options["reference"] is True
    assert deblur.methods["PnP-CM"].preset == "pnp-cm/official/deblur-gauss"
    photos = deblur.data["celeba-hq"]
    assert (photos.options, photos.count, photos.source) == ({"size": 256}, 300, "folder")
    (blur,) = (
        s
        for s in specs("main", prior="a.pt", data=str(tmp_path), kernel_wizard="/b/GOPRO_wVAE.pth")
        if "nonlinear" in s.name
    )
    assert blur.tasks["nonlinear-deblur"].options == {"kernel_wizard": "/b/GOPRO_wVAE.pth"}
    knees = specs("main", prior="model.pt", data=str(tmp_path), domain="fastmri-pdfs")
    (r8,) = (s for s in knees if "r8" in s.tasks)
    assert r8.data["fastmri-pdfs"].options == {"contrast": "pdfs", "size": 320}
    assert r8.tasks["r8"].options == {"acceleration": 8, "lines": 12, "reference": True}
    assert r8.tasks["r8"].sigma_y == (0.0,)
    assert r8.methods["PnP-CM"].preset == "fastmri/pdfs-r8"
    assert r8.methods["DDS"].preset == "dds/fastmri/r8"
    (bedroom, *_) = specs("main", prior="model.pt", data=str(tmp_path), domain="lsun-bedroom")
    assert bedroom.methods["DPS"].preset == "dps/lsun/superres-4"


def test_bad_domains(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="prior is given without data"):
        domains(prior="model.pt")
    with pytest.raises(
        ArgumentError, match=r"teacher is 't\.pt', but prior and data are not given"
    ):
        domains(teacher="t.pt")
    with pytest.raises(UnknownNameError, match="did you mean 'fastmri-pd'"):
        domains(domain="fastmri")
    with pytest.raises(ArgumentError, match=r"which does not exist; see docs/reproduce\.md"):
        domains("model.pt", str(tmp_path / "none"))
    with pytest.raises(ArgumentError, match=r"teacher is .* of kind consistency, expected a diff"):
        domains("gaussian", str(tmp_path), teacher=str(tiny(tmp_path, 3, ConsistencyModel)))


def test_unknown_table() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'ablation'"):
        specs("ablations")


def test_the_centre_of_the_sensitivity_study_is_the_preset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """from_paper with the factors 1 gives the published preset; no factor leaves ±25 %."""
    preset = PRESETS["celeba-hq/deblur-gauss"].solver
    built = PnPCMConfig.from_paper(100, 0.1, preset.deltas, rho=(-4, 6.5), mu=0.1)
    assert (built.sigmas, built.rhos) == (preset.sigmas, preset.rhos)
    monkeypatch.setenv("PNPCM_DATA", str(tmp_path / "none"))
    (spec,) = (s for d in domains() for s in sensitivity(d))
    (published, *changed) = spec.methods.values()
    assert published == MethodRow(preset="celeba-hq/deblur-gauss")
    assert len(changed) == len(CHANGES) * DRAWS
    largest = []
    for row in changed:
        ratios = [a / b for a, b in zip(row.settings["deltas"], preset.deltas, strict=True)]
        largest.append(max(abs(r - 1) for r in (*ratios, row.settings["mu"] / preset.mu)))
    for k, p in enumerate(CHANGES):
        some = largest[k * DRAWS : (k + 1) * DRAWS]
        assert max(some) <= p + 1e-9
        assert max(some) > p / 2


def row(method: str, psnr: float, lpips: float, number: int = 0, **more: object) -> dict[str, Any]:
    return {
        "data": "celeba-hq", "task": "superres-4", "method": method,
        "number": number, "image": f"{number}.png", "seed": number,
        "sigma_y": 0.05, "steps": None, "nfe": 4, "failed": None,
        "scores": {"psnr": psnr, "lpips-vgg": lpips},
    } | more  # fmt: skip


def test_means_stand_beside_the_published_numbers(tmp_path: Path) -> None:
    rows = [
        row("injection, momentum", 20.0, 0.4),
        row("injection, momentum", 22.0, 0.2, 1),
        row("injection, momentum", 99.0, 0.0, 2, failed="diverged"),
        row("another method", 50.0, 0.0),
    ]
    used = domains("model.pt", str(tmp_path))
    cells = beside("ablation", rows, used)
    assert len(cells) == 12
    (ours,) = (c for c in cells if c.count)
    assert (ours.mean("psnr"), ours.mean("lpips-vgg")) == (21.0, pytest.approx(0.3))
    assert ours.count == 2
    text = markdown(sections("ablation", cells, used))
    assert text.startswith("## ablation, CelebA-HQ, 256×256\n")
    assert "PSNR (dB) / LPIPS (VGG). Ours: 2 images of CelebA-HQ, 256×256, prior model.pt" in text
    assert "| injection, momentum | 4 | 4 | 21.00 / 0.300 | 27.27 / 0.285 | – |" in text
    assert "| no injection, no momentum | – | 4 | – | 22.93 / 0.461 | – |" in text


def test_differences_of_lines_are_paired_and_compared_with_the_published_sign(
    tmp_path: Path,
) -> None:
    """Published, superres-4: injection 27.27 − 25.97, momentum 27.27 − 24.25 dB."""
    full, quiet, slow = (
        f"{a}, {b}"
        for a, b in (
            ("injection", "momentum"),
            ("no injection", "momentum"),
            ("injection", "no momentum"),
        )
    )
    rows = [row(full, 20.0 + k, 0.3, k) for k in range(4)]
    rows += [row(quiet, 21.0 + k, 0.4, k) for k in range(3)]  # image 3 is no pair
    rows += [row(slow, p, 0.3, k) for k, p in enumerate((19.0, 22.0, 21.0, 24.0))]
    used = domains("model.pt", str(tmp_path))
    found = {(c.words, c.metric): c for c in comparisons("ablation", beside("ablation", rows, used))
             if c.task == "superres-4"}  # fmt: skip
    injection = found["effect of injection", "psnr"]
    assert injection.published == pytest.approx(1.30)
    assert injection.ours is not None
    assert (injection.ours.mean, injection.ours.images) == (-1.0, 3)
    assert injection.outcome == OPPOSITE
    assert found["effect of injection", "lpips-vgg"].outcome == SAME  # lower, as published
    assert found["effect of momentum", "psnr"].outcome == UNDECIDED  # differences 1, −1, 1, −1
    (section,) = sections("ablation", beside("ablation", rows, used), used)
    _, differences = section.tables
    assert differences.rows[0][:3] == ("effect of injection", "−1.00 / −0.100", "+1.30 / −0.184")
    assert "PSNR (dB) 0 as in the paper, 1 opposite, 1 undecided" in differences.words
    assert "rough with 3 images" in differences.words


@pytest.mark.parametrize("table", PAIRS)
def test_every_comparison_of_a_table_has_published_cells(table: str, tmp_path: Path) -> None:
    used = [replace(d, paper=p) for d in domains("model.pt", str(tmp_path)) for p in PAPER]
    for domain in used:
        tasks = SCANS if domain.paper.startswith("fastmri") else PHOTO_TASKS
        cells = beside(table, [], [replace(domain, tasks=tasks)])
        found = comparisons(table, cells)
        assert bool(found) == bool(cells)
        assert all(c.published == c.published and c.outcome is None for c in found)


def test_photographs_have_a_table_of_linear_and_one_of_nonlinear_tasks(tmp_path: Path) -> None:
    used = domains("model.pt", str(tmp_path))
    linear, nonlinear = sections("main", beside("main", [], used), used)
    assert "linear tasks" in linear.title
    assert linear.tables[0].head[3:] == (
        "superres-4", "paper", "deblur-gauss", "paper", "inpaint-70", "paper",
    )  # fmt: skip
    methods = [row[0] for row in nonlinear.tables[0].rows]
    assert methods == ["DPS", "PiGDM", "DPnP", "PnP-CM"]
    (pigdm,) = (row for row in nonlinear.tables[0].rows if row[0] == "PiGDM")
    assert pigdm[-2:] == ("–", "–")  # the paper has none for phase retrieval


def test_every_row_of_all_tables_is_planned_once() -> None:
    found = specs("all")
    names = [spec.name for spec in found]
    assert len(set(names)) == len(names)
    assert {table_of(spec) for spec in found} == {
        "main", "ablation", "momentum", "nfe-noise", "sensitivity",
    } - (set() if any("ixi" in name for name in names) else {"momentum"})  # fmt: skip


def test_cosign_runs_with_the_controlnet_of_its_task(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    Image.fromarray(pixels).resize((64, 64)).save(tmp_path / "a.png")
    row = MethodRow(preset="cosign/{prior}/{task}", control="{task}")
    spec = Spec(
        name="cosign",
        data={"a": DataSet(str(tmp_path))},
        tasks={"superres-4": TaskRow("superres", {"factor": 4})},
        methods={"CoSIGN": row, "without": replace(row, control=None)},
        priors=("faces",),
        metrics=("psnr",),
        pictures=0,
    )
    found = {r["method"]: r for r in bench(spec, tmp_path / "out").rows()}
    assert (found["CoSIGN"]["failed"], found["CoSIGN"]["nfe"]) == (None, 4)
    assert "needs one with a ControlNet" in found["without"]["failed"]


# the experiment of the paper with miniature files of its layouts ---------------------------------
def tiny(folder: Path, channels: int, kind: Any) -> Path:
    """A checkpoint of a network of a few thousand weights."""
    config = UNetConfig(
        image_size=None, in_channels=channels, model_channels=8, channel_mult=(1, 1),
        num_res_blocks=1, attention_ds=(), middle_attention=False, norm=False,
    )  # fmt: skip
    network, generator = UNet(config), torch.Generator().manual_seed(0)
    for p in network.parameters():
        torch.nn.init.normal_(p, std=0.05, generator=generator)
    path = folder / f"{kind.__name__}{channels}.safetensors"
    save_prior(kind(network), path)
    return path


def pictures() -> list[bytes]:
    found = []
    for i in range(2):
        file = io.BytesIO()
        pixels = np.random.default_rng(i).integers(0, 256, (6, 9, 3), dtype=np.uint8)
        Image.fromarray(pixels).resize((60, 40)).save(file, "PNG")
        found.append(file.getvalue())
    return found


def volumes(folder: Path) -> None:
    """Two volumes of 12 slices with 4 coils, of both contrasts, one of one coil, and a text."""
    h5py = pytest.importorskip("h5py")
    folder.mkdir()
    for name, kind in (("file1000007", "CORPD_FBK"), ("file1000000", "CORPDFS_FBK")):
        write_simulated(folder / f"{name}.h5", phantoms(12, (48, 40)), n_coils=4, noise_std=0.002)
        with h5py.File(folder / f"{name}.h5", "r+") as file:
            file.attrs["acquisition"] = kind
    with h5py.File(folder / "file1.h5", "w") as file:
        file["kspace"] = np.ones((12, 48, 40), np.complex64)
    (folder / "readme.txt").write_text("no volume")


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """32×32 instead of 256×256 and 320×320 pixels."""
    monkeypatch.setattr(reproduce, "SIDES", {"photo": 32, "scan": 32})
    few = {name: replace(row, options=row.options | {"lines": 2}) for name, row in KNEES.items()}
    monkeypatch.setattr(reproduce, "KNEES", few)


def command(*words: object) -> str:
    done = CliRunner().invoke(app, ["reproduce", *map(str, words)])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.usefixtures("small")
def test_photographs_of_a_folder_by_the_command(tmp_path: Path) -> None:
    for i, data in enumerate(pictures()):
        (tmp_path / f"{i}.png").write_bytes(data)
    prior, out = tiny(tmp_path, 3, ConsistencyModel), tmp_path / "out"
    words = ("ablation", "--prior", prior, "--data", tmp_path, "--out", out, "--limit", 1)
    text = command(*words, "--dry-run")
    assert "ablation-celeba-hq: 12 rows, 0 in the store" in text
    assert not out.exists()
    text = command(*words)
    assert "## ablation, CelebA-HQ, 32×32" in text
    rows = list(Store(out).rows())
    assert len(rows) == 12
    assert {row["failed"] for row in rows} == {None}
    assert {row["image"] for row in rows} == {"0.png"}
    assert "Ours: 1 image of" in (out / "ablation.md").read_text(encoding="utf-8")
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "Beside the paper" in page
    assert "27.27 / 0.285" in page
    assert "Ours: 2 images of" in command(*words[:-1], 2)
    assert "Ours: 1 image of" in command(*words)  # not those of the store that --limit leaves out


@pytest.mark.usefixtures("small")
def test_rows_of_other_numbers_are_not_part_of_a_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store keeps the rows of earlier presets: the table has the mean of those of today."""
    for i, data in enumerate(pictures()):
        (tmp_path / f"{i}.png").write_bytes(data)
    prior = str(tiny(tmp_path, 3, ConsistencyModel))
    used = domains(prior, str(tmp_path))
    (spec,) = specs("ablation", prior=prior, data=str(tmp_path))
    store = bench(spec, tmp_path / "out", limit=1)
    before = tables([spec], used, store, limit=1)
    earlier = replace(
        spec, methods={n: replace(m, settings={"mu": 0.5}) for n, m in spec.methods.items()}
    )
    store = bench(earlier, tmp_path / "out", limit=1)
    assert len(list(store.rows())) == 2 * len(finished(spec, store, limit=1))
    assert tables([spec], used, store, limit=1) == before
    assert tables([earlier], used, store, limit=1) != before


@pytest.mark.usefixtures("small")
def test_bedrooms_of_an_lmdb_with_a_diffusion_model(tmp_path: Path) -> None:
    lmdb = pytest.importorskip("lmdb")
    folder = tmp_path / "bedroom_val_lmdb"
    with lmdb.open(str(folder), map_size=2**20) as base, base.begin(write=True) as transaction:
        for i, data in enumerate(pictures()):
            transaction.put(str(i).encode(), data)
    own = {"domain": "lsun-bedroom", "teacher": str(tiny(tmp_path, 3, DiffusionModel))}
    prior = str(tiny(tmp_path, 3, ConsistencyModel))
    found = {s.name: s for s in specs("main", prior=prior, data=str(folder), **own)}
    plain = found["main-lsun-bedroom-inpaint-70"]
    assert list(plain.methods) == ["PnP-CM", "CM", "CM4IR"]
    assert plain.data["lsun-bedroom"].source == "lmdb"
    diffusion = found["main-lsun-bedroom-inpaint-70-diffusion"]
    assert list(diffusion.methods) == ["DPS", "PiGDM", "DiffPIR", "DPnP", "PnP-DM"]
    bench(plain, tmp_path / "out", limit=1, only=["*/PnP-CM/*", "*/CM4IR/*"])
    store = bench(diffusion, tmp_path / "out", limit=1, only=["*/DiffPIR/*"])
    scored = {row["method"]: (row["prior"], row["nfe"]) for row in store.rows()}
    assert scored == {
        "PnP-CM": (prior, 4),
        "CM4IR": (prior, 4),
        "DiffPIR": (own["teacher"], 100),
    }


@pytest.mark.usefixtures("small")
def test_knees_of_multi_coil_volumes_by_the_command(tmp_path: Path) -> None:
    volumes(tmp_path / "val")
    prior, out = tiny(tmp_path, 2, ConsistencyModel), tmp_path / "out"
    words = ("momentum", "--domain", "fastmri-pd", "--prior", prior, "--data", tmp_path / "val")
    text = command(*words, "--out", out)
    assert "## momentum, fastMRI knee, PD" in text
    rows = list(Store(out).rows())
    assert {row["image"] for row in rows} == {"file1000007/5", "file1000007/6"}  # 12 − 2 · 5
    assert len(rows) == 2 * 2 * 3
    assert {row["failed"] for row in rows} == {None}
    assert {row["sigma_y"] for row in rows} == {0.0}
    assert set(rows[0]["scores"]) == {"psnr", "ssim", "nmse"}
    with pytest.raises(ArgumentError, match="give the folder of fastMRI's multicoil_val"):
        Scans(tmp_path / "out")
    with pytest.raises(ArgumentError, match="shrink or side is given for measured scans"):
        DataSet("val", "scans", side=32)


def test_a_measured_slice_is_the_mvue_of_its_coils(tmp_path: Path) -> None:
    """By NumPy from the file: crop, combination with the maps, scale, scores of the paper."""
    volumes(tmp_path / "val")
    source = Scans(tmp_path / "val", contrast="pdfs", size=32)
    assert [source.name(i) for i in range(len(source))] == ["file1000000/5", "file1000000/6"]
    measured, x = source.measured(1), source.image(1, torch.Generator())
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "val" / "file1000000.h5") as file:
        kspace = file["kspace"][6]
    shift = {"axes": (-2, -1)}

    def centred(transform: Any, values: Any) -> Any:
        return np.fft.fftshift(transform(np.fft.ifftshift(values, **shift), norm="ortho"), **shift)

    coils = centred(np.fft.ifft2, kspace)
    top, left = ((n - 32) // 2 for n in coils.shape[1:])
    coils = coils[:, top : top + 32, left : left + 32]
    maps = measured.coil_maps[0].numpy()
    mvue = (maps.conj() * coils).sum(0)
    top = np.abs(mvue).max()
    np.testing.assert_allclose(x[0] + 1j * x[1], mvue / top, atol=1e-5)
    np.testing.assert_allclose(
        measured.kspace[0], centred(np.fft.fft2, coils) / top, atol=1e-5 * np.abs(kspace).max()
    )
    noisy = x[None] + 0.05
    a, b = (np.abs((t[0, 0] + 1j * t[0, 1]).numpy()) * measured.support.numpy()
            for t in (noisy, x[None]))  # fmt: skip
    db = 20 * np.log10(b.max() / np.sqrt(np.mean((a - b) ** 2)))
    assert score(noisy, x[None], ["psnr"], measured)["psnr"] == pytest.approx(db, abs=1e-3)
