"""The commands and the code of docs/bench.md and docs/reproduce.md, and the SLURM example, run."""

import importlib.util
import re
import shlex
import sqlite3
import subprocess
import sys
from dataclasses import fields as fields_of
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pnpcm.bench import Spec, Store, read_spec, reproduce
from pnpcm.bench.reproduce import KNEES
from pnpcm.bench.run import planned
from pnpcm.bench.spec import DataSet, MethodRow, TaskRow
from pnpcm.bench.store import COLUMNS
from pnpcm.cli import main
from pnpcm.mri import phantoms, write_simulated
from pnpcm.networks import UNet, UNetConfig
from pnpcm.priors import ConsistencyModel
from pnpcm.priors.checkpoint import export_openai

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/bench.md").read_text(encoding="utf-8")
EXAMPLE = ROOT / "benchmarks/specs/slurm_cluster.py"


def blocks(kind: str) -> list[str]:
    found: list[str] = re.findall(rf"```{kind}\n(.*?)```", PAGE, re.DOTALL)
    assert found
    return found


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The spec of the page in the current folder, on images of 32×32 pixels."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "images").mkdir()
    for i in range(2):
        pixels = np.random.default_rng(i).integers(0, 256, (8, 8, 3), dtype=np.uint8)
        Image.fromarray(pixels).resize((64, 64)).save(tmp_path / f"images/{i}.png")
    (text,) = blocks("yaml")
    text = text.replace("side: 64", "side: 32").replace(", lpips-vgg", "")  # faster
    (tmp_path / "kodak.yaml").write_text(text, encoding="utf-8")
    return tmp_path


def test_the_commands_of_the_page_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "0")
    monkeypatch.setenv("SLURM_ARRAY_TASK_COUNT", "1")
    lines = [line for block in [*blocks("sh"), *blocks("bash")] for line in block.splitlines()]
    commands = [shlex.split(line, comments=True) for line in lines if line.startswith("pnpcm ")]
    assert len(commands) >= 8
    for words in commands:
        if "--workers" in words:  # see test_cluster.py
            continue
        monkeypatch.setattr("sys.argv", words)
        with pytest.raises(SystemExit) as exit_:
            main()
        assert exit_.value.code == 0, words
    spec = read_spec("kodak.yaml")
    assert Store(Path("out/kodak")).keys() == {key for _, key in planned(spec)}
    query = next(line for line in lines if line.startswith("python -c"))
    if sqlite3.sqlite_version_info >= (3, 38):  # ->>
        done = subprocess.run(
            query.replace("python", sys.executable, 1),
            shell=True,
            capture_output=True,
            text=True,
            check=True,
        )
        assert "Wiener" in done.stdout


def test_the_python_of_the_page_runs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for block in blocks("python"):
        exec(compile(block, "docs/bench.md", "exec"), {})
    printed = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in printed] == [
        "PnP-CM",
        "PnP-CM,",
        "PnP-CM,",
        "DPIR",
        "Wiener",
    ]


def test_the_page_names_every_field_and_column() -> None:
    fields = PAGE.split("## A spec")[1].split("## Run")[0]
    for cls in (Spec, DataSet, TaskRow, MethodRow):
        for name in {field.name for field in fields_of(cls)} - {"folder"}:
            assert f"`{name}`" in fields, name
    columns = PAGE.split("## The store")[1]
    for name in COLUMNS:
        assert f"`{name}`" in columns, name


def example() -> ModuleType:
    found = importlib.util.spec_from_file_location("slurm_cluster", EXAMPLE)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def test_the_example_of_a_slurm_cluster(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a stand-in for dask_jobqueue whose client computes in this process."""
    module, seen = example(), dict[str, Any]()

    class Context:
        def __enter__(self) -> Any:
            return self

        def __exit__(self, *error: object) -> None:
            return None

    class Cluster(Context):
        def __init__(self, **settings: Any) -> None:
            seen.update(settings)

        def adapt(self, *, minimum_jobs: int, maximum_jobs: int) -> None:
            seen["jobs"] = (minimum_jobs, maximum_jobs)

        def get_client(self) -> Any:
            class None_(Context):
                def __enter__(self) -> None:
                    return None

            return None_()

    monkeypatch.setitem(sys.modules, "dask_jobqueue", SimpleNamespace(SLURMCluster=Cluster))
    spec = folder / "kodak.yaml"
    spec.write_text(spec.read_text() + "steps: [null]\npictures: 0\n")
    text = spec.read_text().replace("count: 2", "count: 1")
    spec.write_text(text.replace("skip: [", 'skip: ["PnP-CM", "DPIR", '))
    module.main(str(spec), "out")
    assert seen["cores"] == seen["processes"]
    assert seen["jobs"] == (0, 10)
    assert len(Store(Path("out")).keys()) == 2  # Wiener on two measurements
    assert capsys.readouterr().out.endswith("2 of 2 rows\n")


@pytest.fixture
def own_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Miniature checkpoints and data with the names of docs/reproduce.md, 32×32 pixels."""
    h5py, lmdb = pytest.importorskip("h5py"), pytest.importorskip("lmdb")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PNPCM_DATA", str(tmp_path / "none"))
    monkeypatch.setattr(reproduce, "SIDES", {"photo": 32, "scan": 32})
    few = {n: replace(row, options=row.options | {"lines": 2}) for n, row in KNEES.items()}
    monkeypatch.setattr(reproduce, "KNEES", few)
    photos = ("celeba.pt", "celeba_diffusion.pt", "cd_bedroom256_lpips.pt", "edm_bedroom256_ema.pt")
    for names, channels in ((photos, 3), (("knee.pt",), 2)):
        network = UNet(
            UNetConfig(
                image_size=32, in_channels=channels, model_channels=32, channel_mult=(1,),
                num_res_blocks=1, attention_resolutions=(), middle_attention=False,
            )
        )  # fmt: skip
        for name in names:
            export_openai(ConsistencyModel(network), tmp_path / name)
    (tmp_path / "celeba256").mkdir()
    Image.fromarray(np.full((40, 50, 3), 99, np.uint8)).save(tmp_path / "celeba256/0.jpg")
    data = (tmp_path / "celeba256/0.jpg").read_bytes()
    rooms = str(tmp_path / "bedroom_val_lmdb")
    with lmdb.open(rooms, map_size=2**20) as base, base.begin(write=True) as transaction:
        transaction.put(b"0", data)
    (tmp_path / "multicoil_val").mkdir()
    for name, kind in (("a", "CORPD_FBK"), ("b", "CORPDFS_FBK")):
        path = tmp_path / f"multicoil_val/{name}.h5"
        write_simulated(path, phantoms(11, (40, 40)), n_coils=3)
        with h5py.File(path, "r+") as file:
            file.attrs["acquisition"] = kind
    return tmp_path


def test_the_commands_of_the_page_on_the_tables_of_the_paper(
    own_files: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As dry runs: the prior is evaluated once per method and task; see test_reproduce.py."""
    page = (ROOT / "docs/reproduce.md").read_text(encoding="utf-8")
    lines = [line for block in re.findall(r"```sh\n(.*?)```", page, re.DOTALL)
             for line in block.splitlines()]  # fmt: skip
    commands = [shlex.split(line) for line in lines]
    assert len(commands) == 7
    for words in commands:
        plan = words[1] == "reproduce"
        monkeypatch.setattr("sys.argv", [*words, *(["--dry-run"] if plan else [])])
        with pytest.raises(SystemExit) as exit_:
            main()
        printed = capsys.readouterr()
        assert exit_.value.code == 0, (words, printed.err)
        assert ("in the store" in printed.out) == plan
    assert (own_files / "celeba-teacher.safetensors").is_file()
    assert not (own_files / "out").exists()
