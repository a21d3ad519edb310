"""Runs that meet bad inputs, disks, other processes and options: nothing is lost, all is told.

One test per fault of e041efb, where each fails (``tests/hostile.py``).
"""

from __future__ import annotations

import json
import os
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from hostile import MODULE, Ended, each_in, environment, limited, pnpcm_in

RANDOM = np.random.default_rng(0)
DENOISE = ["--task", "denoise", "--json", "--sigma-y", "0.1"]


def picture(path: Path, side: int = 24) -> Path:
    path.parent.mkdir(exist_ok=True)
    values = np.clip(RANDOM.normal(120, 20, (side, side, 3)), 0, 255)
    Image.fromarray(values.astype(np.uint8)).save(path)
    return path


def measurement(path: Path, y: np.ndarray | None = None) -> Path:
    """A measurement file; ``y``: in the place of its own."""
    picture(path.with_suffix(".png"))
    done = pnpcm_in(path.parent, "simulate", f"{path.stem}.png", "--task", "superres", "--factor",
                    "2", "--out", "measured")  # fmt: skip
    assert done.code == 0, done
    with np.load(path.parent / "measured" / path.name) as file:
        arrays = {name: file[name] for name in file.files}
    np.savez(path, **arrays | ({} if y is None else {"y": y}))
    path.with_suffix(".png").unlink()
    return path


# one bad file among many -------------------------------------------------------------------------
def damaged_array(path: Path) -> None:
    """A measurement file whose array has a header of which Python's tokenizer makes nothing."""
    import zipfile

    header = b"{'descr': '<f4', (".ljust(117) + b"\n"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("pnpcm.npy", b"\x93NUMPY\1\0" + len(header).to_bytes(2, "little") + header)


def oversized(path: Path) -> None:
    """The first bytes of a JPEG file of 20000×20000 pixels."""
    picture(path)
    content = path.read_bytes()
    at = content.index(b"\xff\xc0") + 5
    path.write_bytes(content[:at] + struct.pack(">HH", 20000, 20000) + content[at + 4 :])


def not_utf8(path: Path) -> None:
    picture(path.with_name("m.png")).rename(path)


def link_to_itself(path: Path) -> None:
    path.symlink_to(path.name)


BAD = {
    "damaged array": ("m.npz", damaged_array),
    "oversized picture": ("m.jpg", oversized),
    "name that is not UTF-8": (os.fsdecode(b"m\xff.png"), not_utf8),
    "link to itself": ("m.png", link_to_itself),
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ended]:
    """How a run ends whose folder has a good picture, one of them, and a good one."""
    top = tmp_path_factory.mktemp("folders")
    for name, (file, make) in BAD.items():
        picture(top / name / "a.png")
        make(top / name / file)
        picture(top / name / "z.png")
    ends = each_in(top, [["restore", name, *DENOISE, "--out", f"out {name}"] for name in BAD])
    return dict(zip(BAD, ends, strict=True))


@pytest.mark.parametrize("name", BAD)
def test_2_a_bad_file_is_named_and_the_rest_is_done(name: str, folders: dict[str, Ended]) -> None:
    ended = folders[name]
    assert ended.code == 1, ended
    found = [(json.loads(line)["input"], json.loads(line)["status"])
             for line in ended.out.splitlines()]  # fmt: skip
    assert [status for _, status in found] == ["done", "failed", "done"]
    assert Path(found[1][0]).name[0] == "m"


# disks and interrupts ----------------------------------------------------------------------------
NOWHERE = "/sys/pnpcm"  # not even root can create folders there


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a picture ``a.png``, a scan ``head.h5`` and a file ``file``."""
    found = tmp_path_factory.mktemp("desk")
    picture(found / "a.png")
    (found / "file").write_text("mine")
    words = ["--slices", "3", "--size", "32,32", "--coils", "2", "--mask", "gaussian1d"]
    done = pnpcm_in(found, "simulate-mri", "head.h5", *words, "--acceleration", "2", "--acs", "12")
    assert done.code == 0, done
    (found / "deep.json").write_text("[" * 10**5 + "]" * 10**5)
    (found / "latin.yaml").write_bytes("name: é".encode("latin-1"))
    (found / "deep.yaml").write_text("[" * 10**4)
    damaged_array(found / "damaged.npz")
    header = b"{'descr': '<f4', (".ljust(117) + b"\n"
    (found / "damaged.npy").write_bytes(
        b"\x93NUMPY\1\0" + len(header).to_bytes(2, "little") + header
    )
    return found


REFUSED = {
    "8 no folder can be created": ["restore", "a.png", *DENOISE[:2], "--out", NOWHERE],
    "8 out is a file": ["restore", "a.png", *DENOISE[:2], "--out", "file"],
    "8 out is in a file": ["simulate", "a.png", *DENOISE[:2], "--out", "file/x"],
    "8 no volume can be created": ["mri", "head.h5", "--out", NOWHERE],
    "8 tokens": ["restore", "a.png", "--task", "deblur", "--kernel", "damaged.npy"],
    "8 tokens of maps": ["mri", "head.h5", "--dry-run", "--maps", "damaged.npy"],
    "8 recursion": ["restore", "a.png", *DENOISE[:2], "--preset", "deep.json"],
    "8 Unicode, recipe": ["train", "cm", "latin.yaml"],
    "8 recursion, recipe": ["train", "cm", "deep.yaml"],
    "12 batch": ["mri", "head.h5", "--dry-run", "--batch", "0"],
    "12 slices": ["mri", "head.h5", "--dry-run", "--slices", "3:10:0"],
    "12 set": ["restore", "a.png", "--task", "superres", "--dry-run", "--set", "rho_start=x"],
    "12 steps": ["restore", "a.png", "--task", "superres", "--dry-run", "--steps", "1000000000"],
    "12 device": ["restore", "a.png", *DENOISE[:2], "--dry-run", "--device", "cuda"],
    "12 sigma_y": ["restore", "a.png", *DENOISE[:2], "--dry-run", "--sigma-y", "25"],
}


@pytest.fixture(scope="module")
def refusals(desk: Path) -> dict[str, Ended]:
    return dict(zip(REFUSED, each_in(desk, list(REFUSED.values())), strict=True))


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused_with_one_sentence(name: str, refusals: dict[str, Ended]) -> None:
    refusals[name].refused()


def test_8_a_full_disk_is_one_sentence(desk: Path) -> None:
    """A limit of the size of files acts as a full disk."""
    ended = pnpcm_in(desk, "simulate", "a.png", *DENOISE[:2], "--out", "full", file=500)
    assert "full" in ended.refused()
    assert not list(desk.glob("full/*"))


def test_8_an_interrupt_is_one_sentence(desk: Path) -> None:
    folder = desk / "many"
    for i in range(30):  # of which one takes half a second, so that the signal comes in time
        picture(folder / f"{i:02}.png", 384)
    words = ["restore", "many", *DENOISE, "--out", "interrupted"]
    process = subprocess.Popen(
        [*limited(MODULE), *words], cwd=desk, env=environment(), text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    assert "done" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    (line,) = [line for line in err.splitlines() if line.strip()]
    assert line.startswith("pnpcm: ")


# nothing is lost ---------------------------------------------------------------------------------
Losses = tuple[Path, dict[str, Ended]]


def records(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(p.read_text()) for p in sorted(folder.glob("*.result.json"))]


@pytest.fixture(scope="module")
def losses(tmp_path_factory: pytest.TempPathFactory) -> Losses:
    top = tmp_path_factory.mktemp("losses")
    picture(top / "in" / "a.png")
    picture(top / "in" / "a.std.png")
    picture(top / "other" / "a.png")
    mine = top / "first" / ".pnpcm-999999-mydata"
    mine.mkdir(parents=True)
    (mine / "file").write_text("mine")
    measurement(top / "two.npz", RANDOM.normal(0, 0.3, (2, 3, 12, 12)).astype(np.float32))
    commands = {
        "std": ["restore", "in", *DENOISE, "--samples", "2", "--out", "std"],
        "first": ["restore", "in/a.png", *DENOISE, "--out", "first"],
        "second": ["restore", "other/a.png", *DENOISE, "--out", "first"],
        "two": ["restore", "two.npz", "--json", "--out", "two"],
    }
    ends = dict(zip(commands, each_in(top, list(commands.values())), strict=True))
    assert ends["first"].code == 0, ends
    return top, ends


def test_9_results_of_a_and_a_std_do_not_replace_each_other(losses: Losses) -> None:
    folder, ends = losses
    assert ends["std"].code == 0, ends["std"]
    written = [name for record in records(folder / "std") for name in record["files"]]
    assert len(records(folder / "std")) == 2
    assert len(written) == len(set(written))
    assert all((folder / "std" / name).exists() for name in written)


def test_9_another_picture_of_the_same_name_does_not_replace_a_result(losses: Losses) -> None:
    folder, ends = losses
    ends["second"].refused()
    assert [record["input"] for record in records(folder / "first")] == ["in/a.png"]


def test_9_two_measurements_in_a_file_are_not_one_picture(losses: Losses) -> None:
    folder, ends = losses
    (row,) = ends["two"].rows().values()
    assert row["status"] == "failed"
    assert not list(folder.glob("two/*"))


def test_10_a_folder_of_the_user_is_not_taken_for_a_temporary_one(losses: Losses) -> None:
    assert (losses[0] / "first" / ".pnpcm-999999-mydata" / "file").read_text() == "mine"


# other processes ---------------------------------------------------------------------------------
PAUSED = """
import os, sys, time
from pathlib import Path
from pnpcm.cli import main
replace, paused = os.replace, []

def slow(source, target, **options):
    if not paused:
        paused.append(source)
        Path("paused").touch()
        while not Path("go").exists():
            time.sleep(0.05)
    return replace(source, target, **options)

os.replace = slow
sys.argv = ["pnpcm", *sys.argv[1:]]
main()
"""


def test_10_files_of_a_process_that_is_not_seen_are_kept(tmp_path: Path) -> None:
    """A process in a container sees neither the numbers of other processes nor who is alive."""
    alone = ["unshare", "--user", "--map-root-user", "--pid", "--fork"]
    try:
        subprocess.run([*alone, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("needs unshare and user namespaces")
    picture(tmp_path / "a.png")
    picture(tmp_path / "b.png")
    first = subprocess.Popen(
        [sys.executable, "-c", PAUSED, "restore", "a.png", *DENOISE, "--out", "out"],
        cwd=tmp_path, env=environment(), text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    deadline = time.monotonic() + 60
    while not (tmp_path / "paused").exists():
        assert first.poll() is None, first.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    command = [sys.executable, "-m", "pnpcm", "restore", "b.png", *DENOISE, "--out", "out"]
    second = subprocess.run(
        [*alone, *command], cwd=tmp_path, env=environment(), capture_output=True, text=True,
        timeout=60,
    )  # fmt: skip
    (tmp_path / "go").touch()
    out, err = first.communicate(timeout=60)
    assert second.returncode == 0, second
    assert first.returncode == 0, out + err
    assert json.loads(out)["status"] == "done"
    assert len(records(tmp_path / "out")) == 2


# scans and priors --------------------------------------------------------------------------------
HUB = """
import json
from pathlib import Path

def snapshot_download(name, revision=None, **options):
    with Path({calls!r}).open("a") as file:
        file.write(json.dumps([name, revision]) + "\\n")
    folder = Path({folder!r}) / (revision or "{commit}")
    folder.mkdir(parents=True, exist_ok=True)
    return str(folder)
"""
COMMIT = "0123456789abcdef0123456789abcdef01234567"
Late = tuple[dict[str, Ended], list[list[str]]]


@pytest.fixture(scope="module")
def late(desk: Path) -> Late:
    """How runs end on a blocked output and on priors, and what is asked of a Hub made here."""
    (desk / "late" / "head.result.json").mkdir(parents=True)
    (desk / "mine" / "head.npy").mkdir(parents=True)
    (desk / "mine" / "head.npy" / "file").write_text("mine")
    package, calls = desk / "packages" / "huggingface_hub", desk / "calls"
    package.mkdir(parents=True)
    text = HUB.format(calls=str(calls), folder=str(desk / "cache"), commit=COMMIT)
    (package / "__init__.py").write_text(text)
    prior = ["restore", "a.png", *DENOISE[:2], "--prior"]
    commands = {
        "late": ["mri", "head.h5", "--format", "npy", "--out", "late"],
        "mine": ["mri", "head.h5", "--format", "npy", "--out", "mine"],
        "mistyped": [*prior, "weihgts/natural-cm"],
        "hub": [*prior, "hf:owner/name"],
    }
    ends = each_in(desk, list(commands.values()), first=str(package.parent))
    asked = [json.loads(line) for line in calls.read_text().splitlines()]
    return dict(zip(commands, ends, strict=True)), asked


def test_11_a_scan_that_fails_late_leaves_nothing(late: Late, desk: Path) -> None:
    """Its record, which comes last, cannot be written, since a folder has its name."""
    assert [p.name for p in (desk / "late").iterdir()] == ["head.result.json"]
    assert late[0]["late"].code == 2
    assert "head.result.json" in late[0]["late"].err


def test_11_a_folder_of_the_user_is_not_replaced_by_a_scan(late: Late, desk: Path) -> None:
    assert (desk / "mine" / "head.npy" / "file").read_text() == "mine"
    assert "head.npy" in late[0]["mine"].refused()


def test_11_a_mistyped_path_is_not_downloaded(late: Late) -> None:
    assert [name for name, _ in late[1] if "weihgts" in name] == []
    assert "weihgts/natural-cm" in late[0]["mistyped"].refused()


def test_11_all_files_of_a_download_are_of_one_commit(late: Late) -> None:
    """Only the first question may be without a revision: it finds the commit."""
    late[0]["hub"].refused()
    first, *rest = [revision for name, revision in late[1] if name.endswith("owner/name")]
    assert first is None
    assert set(rest) == {COMMIT}


# values of images --------------------------------------------------------------------------------
VALUES = """
import json, sys
import torch
import pnpcm
from pnpcm.errors import PnPCMError
from pnpcm.operators import GaussianBlur, measure

operator = GaussianBlur((3, 32, 32), 5, 1.0)
ramp = torch.linspace(-0.9, 0.9, 32).expand(1, 3, 32, 32)
y = measure(operator, ramp.clone(), 0.02, generator=torch.Generator().manual_seed(0))
given = {
    "[-1, 1]": (y, 0.02),
    "[0, 1]": ((y + 1) / 2, 0.02),
    "[0, 255]": ((y + 1) * 127.5, 0.02),
    "sigma_y": (y, 25.0),
    "requires_grad": (y.clone().requires_grad_(), 0.02),
    "uint8": (((y + 1) * 127.5).clamp(0, 255).to(torch.uint8), 0.02),
}
found = {}
for name, (values, sigma_y) in given.items():
    try:
        found[name] = pnpcm.restore(values, operator, "gaussian", sigma_y=sigma_y).report()
    except PnPCMError as error:
        found[name] = f"refused: {error}"
    except Exception as error:
        found[name] = f"{type(error).__name__}: {error}"
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def ranges(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    (ended,) = each_in(tmp_path_factory.mktemp("ranges"), [[]], call=VALUES)
    assert ended.code == 0, ended
    return json.loads(ended.out)


def test_12_an_image_in_0_1_does_not_just_explain_the_data(ranges: dict[str, str]) -> None:
    assert "explains the data" in ranges["[-1, 1]"]
    assert "the result explains the data" not in ranges["[0, 1]"]
    assert "range" in ranges["[0, 1]"]


@pytest.mark.parametrize("name", ["[0, 255]", "sigma_y", "requires_grad", "uint8"])
def test_12_values_that_cannot_be_are_refused(name: str, ranges: dict[str, str]) -> None:
    assert ranges[name].startswith("refused: "), ranges[name]
    assert "\n" not in ranges[name]
