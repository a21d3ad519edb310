"""Values of options that are out of range: one sentence each, in the spelling of a shell."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from golden import TINY, random_unet
from pnpcm import ConsistencyModel, save_prior
from pnpcm.cli import main

Run = Callable[[str], tuple[int, str]]
RESTORE = "restore in.png --task denoise"
MRI = "mri scan.h5 --mask gaussian1d --format npy"
CASES = {
    "batch": (f"{MRI} --batch 0", "--batch must be a whole number ≥ 1, got 0"),
    "step of slices": (f"{MRI} --slices 3:10:0", "--slices is '3:10:0', expected 3, 3:10 or"),
    "no slice": (f"{MRI} --slices 5:9", "--slices is '5:9', which is none of the slices 0…1"),
    "coils": (f"{MRI} --coils 0", "--coils is 0, but kspace has 2 coils"),
    "too many coils": (f"{MRI} --coils 99", "--coils is 99, but kspace has 2 coils; give a number"),
    "set index": (f"{MRI} --set-index 7", "--set-index is 7, but"),
    "acceleration": (f"{MRI} --acceleration 0", "--acceleration must be finite and ≥ 1, got 0"),
    "no number": (f"{MRI} --acceleration nan", "--acceleration must be finite and ≥ 1, got nan"),
    "crop": (f"{MRI} --crop-first 0,0", "--crop-first is '0,0', expected two positive numbers"),
    "word": (f"{RESTORE} --set rho_start=x", "--set is rho_start=x, but a value is not of the"),
    "steps": (f"{RESTORE} --steps 1000000000", "--steps must be a whole number ≥ 1 and ≤ 100000"),
    "samples": (f"{RESTORE} --samples 1000000000", "--samples must be a whole number ≥ 1 and ≤"),
    "no device": (f"{RESTORE} --device xyz", "--device is 'xyz', on which torch cannot compute"),
    "device": (f"{RESTORE} --device meta", "--device is 'meta', which holds no numbers"),
    "factor": (
        "restore in.png --task superres --factor 1000000",
        "--factor must be a whole number of at least 2 and at most 64, got 1000000",
    ),
    "kernel": ("restore in.png --task deblur --gaussian nan,1", "--gaussian is (nan, 1.0), exp"),
    "wide kernel": ("restore in.png --task deblur --gaussian 99999,1", "--gaussian is (99999.0,"),
    "noise": ("simulate-mri s.h5 --noise nan --size 16,16", "--noise must be finite and ≥ 0"),
    "number of slices": ("simulate-mri s.h5 --slices 0", "--slices must be at least 1, got 0"),
    "size": ("simulate-mri s.h5 --size 0,0", "--size is '0,0', expected two positive numbers"),
    "phantom of a large size": (
        "simulate-mri s.h5 --size 100000,100000",
        "--slices is 4 and --size is 100000×100000: the phantom has 4×100000×100000 = 40000000000",
    ),
    "many slices": (
        "simulate-mri s.h5 --slices 1000000000 --size 16,16",
        "--slices is 1000000000 and --size is 16×16: the phantom has 1000000000×16×16 =",
    ),
    "many coils": (
        "simulate-mri s.h5 --slices 1 --size 16,16 --coils 1000000000",
        "--coils is 1000000000: one slice has 1000000000×1000000000 =",
    ),
    "large samples": (
        "priors sample gaussian --size 100000 --n 1 --out s.png",
        "--n is 1 and --size is 100000: a batch has 1×100000×100000 = 10000000000",
    ),
    "many samples": (
        "priors sample gaussian --n 1000000000 --out s.png",
        "--n is 1000000000 and --size is 64: the picture has 1000000000×64×64 = 4096000000000",
    ),
    "steps of samples": (
        "priors sample gaussian --n 1 --steps 1000000000 --out s.png",
        "--steps must be at most 100000, got 1000000000",
    ),
    "large shape": (
        "check pnpcm.operators:JPEG --shape 3,100000,100000",
        "--shape is '3,100000,100000': a pair of images has 2×3×100000×100000 = 60000000000 values",
    ),
    "size of a prior": (
        "restore wide.png --task denoise --prior p.safetensors --dry-run",
        "prior 'p.safetensors' is for images of 16×16, but the image to be restored is 16×24; crop",
    ),
    "size of samples": (
        "priors sample p.safetensors --size 24 --n 1 --out s.png",
        "--size is 24, but the network was trained on 16×16 images; give --size 16",
    ),
    "crops": (
        "tune --task denoise --data . --size 0 --out t.json",
        "--trials, --images and --size must be ≥ 1",
    ),
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("values")
    Image.fromarray(np.full((16, 16, 3), 90, np.uint8)).save(folder / "in.png")
    Image.fromarray(np.full((16, 24, 3), 90, np.uint8)).save(folder / "wide.png")
    save_prior(
        ConsistencyModel(random_unet(replace(TINY, image_size=16))), folder / "p.safetensors"
    )
    pytest.importorskip("h5py")
    from pnpcm.mri.simulate import phantoms, write_simulated

    write_simulated(folder / "scan.h5", phantoms(2, (16, 16)), n_coils=2)
    return folder


@pytest.fixture
def run(place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    def call(words: str) -> tuple[int, str]:
        monkeypatch.chdir(place)
        monkeypatch.setattr("sys.argv", ["pnpcm", *words.split()])
        with pytest.raises(SystemExit) as ended:
            main()
        return int(ended.value.code or 0), capsys.readouterr().err

    return call


@pytest.mark.parametrize("name", CASES)
def test_a_value_out_of_range_is_one_sentence(name: str, run: Run) -> None:
    command, words = CASES[name]
    code, err = run(command)
    assert code == 2
    (line,) = err.splitlines()
    assert line.startswith("pnpcm: ")
    assert words in line


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there(run: Run) -> None:
    code, err = run(f"{RESTORE} --device cuda")
    assert code == 2
    assert "--device is 'cuda', on which torch cannot compute here" in err
    assert err.endswith("use cpu\n")


def test_seeds_have_the_size_that_torch_takes(run: Run) -> None:
    code, err = run(f"{RESTORE} --seed 99999999999999999999")
    assert code == 2
    assert "--seed" in err
    assert "Traceback" not in err
