"""The readers of pnpcm that are fuzzed: a small valid file of each format, and how it is read."""

from __future__ import annotations

import contextlib
import io
import json
import pickle
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from fuzz.mutations import with_png_sums
from small import NETWORK

RANDOM = np.random.default_rng(0)
PIXELS = RANDOM.integers(0, 256, (24, 20, 3), dtype=np.uint8)
KSPACE = (RANDOM.standard_normal((2, 2, 16, 12, 2)) @ np.array([1, 1j])).astype(np.complex64)
RECIPES = Path(__file__).parents[2] / "recipes"
SPECS = Path(__file__).parents[2] / "benchmarks" / "specs"
XML = (
    "<h><encoding><encodedSpace><matrixSize><x>16</x><y>12</y><z>1</z></matrixSize>"
    "<fieldOfView_mm><x>16</x><y>12</y><z>1</z></fieldOfView_mm></encodedSpace>"
    "<trajectory>cartesian</trajectory></encoding></h>"
)


@dataclass(frozen=True)
class Target:
    """``make(path)`` writes a valid file, ``read(path)`` reads it.

    ``name``: of the file. ``pack``: made of the damaged bytes before they are written, e.g. correct
    check sums. ``quick``: number of inputs in ``make test``. ``many``: ten times as many inputs as
    of the others in ``make fuzz``.
    """

    name: str
    make: Callable[[Path], object]
    read: Callable[[Path], object]
    pack: Callable[[bytes], bytes] = bytes
    quick: int = 200
    many: bool = False


# photographs -------------------------------------------------------------------------------------
def picture(**options: Any) -> Callable[[Path], None]:
    return lambda path: Image.fromarray(PIXELS).save(path, **options)


def png16(path: Path) -> None:
    from pnpcm.io.photos.base import Raw
    from pnpcm.io.photos.png16 import png_bytes

    path.write_bytes(png_bytes(Raw(PIXELS.astype(np.uint16) * 257, None, None)))


def tiff16(path: Path) -> None:
    import tifffile

    tifffile.imwrite(path, PIXELS.astype(np.uint16) * 257, photometric="rgb", rowsperstrip=8)


def read_photo(path: Path) -> object:
    from pnpcm.io import photos

    return photos.read_photo(path)


def read_tables(path: Path) -> object:
    from pnpcm.operators import JPEG

    return JPEG.from_file(path)


def decode(path: Path) -> object:
    from pnpcm.training.sources import decode

    return decode(path.read_bytes(), path.name)


# arrays and scans --------------------------------------------------------------------------------
def npz(path: Path) -> None:
    np.savez_compressed(path, kspace=KSPACE, mask=np.ones(12, np.uint8))


def npz_images(path: Path) -> None:
    np.savez_compressed(path, images=PIXELS[None, ..., 0].repeat(3, 0), subject=np.arange(3))


def in_zip(content: bytes) -> bytes:
    """An ``.npz`` file with these bytes as its array ``kspace``, with a correct check sum."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        file.writestr("kspace.npy", content)
    return buffer.getvalue()


def mat5(path: Path) -> None:
    from scipy.io import savemat

    savemat(path, {"kspace": KSPACE, "mask": np.ones(12, np.uint8)})


def mat5_compressed(path: Path) -> None:
    from scipy.io import savemat

    savemat(path, {"kspace": KSPACE}, do_compression=True)


def mat73(path: Path) -> None:
    import h5py

    pair = np.zeros(KSPACE.shape[::-1], [("real", "f4"), ("imag", "f4")])
    pair["real"], pair["imag"] = KSPACE.T.real, KSPACE.T.imag
    with h5py.File(path, "w", userblock_size=512) as file:
        file["kspace"] = pair
    with path.open("r+b") as stream:
        stream.write(b"MATLAB 7.3 MAT-file".ljust(124) + b"\0\2IM")


def fastmri(path: Path) -> None:
    import h5py

    with h5py.File(path, "w") as file:
        chunked = {"chunks": (1, 2, 16, 12), "compression": "gzip", "shuffle": True}
        file.create_dataset("kspace", data=KSPACE, **chunked)
        file["ismrmrd_header"] = XML
        file["reconstruction_rss"] = np.ones((2, 10, 10), np.float32)
        file["mask"] = np.ones(12, np.uint8)
        file.attrs.update({"max": 1.0, "acquisition": "PD"})


def ismrmrd(path: Path) -> None:
    import ismrmrd

    lines = []
    for column in range(12):
        line = ismrmrd.Acquisition.from_array(np.ascontiguousarray(KSPACE[0, :, :, column]))
        line.idx.kspace_encode_step_1 = column
        line.center_sample = 8
        lines.append(line)
    with ismrmrd.Dataset(str(path), "dataset", create_if_needed=True) as file:
        file.write_xml_header(XML.encode())
    with ismrmrd.File(str(path), "a") as file:
        file["dataset"].acquisitions = lines


def twix(path: Path) -> None:
    from twix import lines_of, write_twix

    path.unlink(missing_ok=True)
    raw = np.concatenate([KSPACE[0], KSPACE[1]], axis=1)  # (coils, readout, phase)
    with contextlib.redirect_stdout(io.StringIO()):
        write_twix(path, lines_of(raw))


def plain_hdf5(path: Path) -> None:
    import h5py

    with h5py.File(path, "w") as file:
        file.create_dataset("a/raw", data=KSPACE)


def read_plain(path: Path) -> object:
    from pnpcm.mri import read_scan

    return read_scan(path, key="a/raw").kspace(0)


def cfl(path: Path) -> None:
    from pnpcm.mri.readers import write_cfl

    write_cfl(path.with_suffix(""), KSPACE[0].transpose(1, 2, 0)[:, :, None])


def read_scan(path: Path) -> object:
    from pnpcm.mri import read_scan

    scan = read_scan(path)
    return [scan.kspace(i) for i in range(min(scan.n_slices, 4))]


def read_array(path: Path) -> object:
    from pnpcm.io.arrays import read_array
    from pnpcm.io.reading import Budget

    return read_array(path, Budget(32))


def read_npz_source(path: Path) -> object:
    from pnpcm.training.sources import Npz

    return Npz(path, exclude={"subject": [1]}).image(0, torch.Generator())


def lmdb(path: Path) -> None:
    import lmdb

    buffer = io.BytesIO()
    Image.fromarray(PIXELS).save(buffer, format="PNG")
    with lmdb.open(str(path.parent), map_size=2**20) as base, base.begin(write=True) as write:
        for i in range(40):
            write.put(b"%03d" % i, buffer.getvalue() if i % 10 == 0 else b"small" * i)


def read_lmdb(path: Path) -> object:
    from pnpcm.training.sources import Lmdb

    source = Lmdb(path.parent)
    return [source.image(i, torch.Generator()) for i in range(0, len(source), 10)]


# measurements, checkpoints, texts, stores --------------------------------------------------------
def measurement(path: Path) -> None:
    from pnpcm.problems import Deblur
    from pnpcm.problems.measurement import simulate, write_measurement

    x = torch.from_numpy(PIXELS.transpose(2, 0, 1).copy())[None] / 127.5 - 1
    write_measurement(path, simulate(x, Deblur(gaussian=(3, 1.0)), 0.05))


def in_measurement(content: bytes) -> bytes:
    """A measurement file with these bytes as its description, with a correct check sum."""
    buffer, array = io.BytesIO(), io.BytesIO()
    np.save(array, np.array(content.decode("latin-1")))
    y = io.BytesIO()
    np.save(y, np.zeros((1, 3, 8, 8), np.float32))
    with zipfile.ZipFile(buffer, "w") as file:
        file.writestr("pnpcm.npy", array.getvalue())
        file.writestr("y.npy", y.getvalue())
    return buffer.getvalue()


def description(path: Path) -> None:
    task = {"type": "SuperRes", "factor": 2, "downsampler": "bicubic", "size": [15, 16]}
    path.write_text(json.dumps({"task": task, "sigma_y": 0.05}))


def read_measurement(path: Path) -> object:
    from pnpcm.problems.measurement import read_measurement

    return read_measurement(path)


def prior() -> Any:
    from pnpcm.networks import UNet, UNetConfig
    from pnpcm.priors import ConsistencyModel

    torch.manual_seed(0)
    values = NETWORK | {"channel_mult": (1,), "attention_ds": ()}
    return ConsistencyModel(UNet(UNetConfig(**values)))


def safetensors(path: Path) -> None:
    from pnpcm import save_prior

    save_prior(prior(), path)


def openai(path: Path) -> None:
    torch.save(prior().network.state_dict(), path)


def kair(path: Path) -> None:
    shapes = {"model.0": (4, 1, 3, 3), "model.2": (4, 4, 3, 3), "model.4": (1, 4, 3, 3)}
    state = {}
    for name, shape in shapes.items():
        state |= {f"{name}.weight": torch.zeros(shape), f"{name}.bias": torch.zeros(shape[0])}
    torch.save(state, path)


def read_prior(path: Path) -> object:
    from pnpcm import load_prior

    return load_prior(path)


def arrays_pickle(path: Path) -> None:
    tree = {"VGG16_0": {"Conv_0": {"bias": np.zeros(4, np.float32)}}}
    content = pickle.dumps(tree, protocol=3)
    path.write_bytes(content.replace(b"numpy._core", b"numpy.core"))


def read_pickle(path: Path) -> object:
    from pnpcm.metrics import lpips

    return lpips._read(path)  # the reader of weights that an installed package brings


def copied(source: Path) -> Callable[[Path], None]:
    return lambda path: path.write_bytes(source.read_bytes()) and None


def preset(path: Path) -> None:
    from pnpcm.presets import PRESETS

    row = PRESETS["celeba-hq/superres-4"]
    path.write_text(json.dumps(vars(row) | {"solver": row.solver.to_dict()}))


def read_recipe(path: Path) -> object:
    from pnpcm.training.recipe import read_recipe

    return read_recipe(path)


def read_spec(path: Path) -> object:
    from pnpcm.bench.spec import read_spec

    return read_spec(path)


def read_preset(path: Path) -> object:
    from pnpcm.presets import load_preset

    return load_preset(path)


def store(path: Path) -> None:
    from pnpcm.bench.store import Store

    with Store(path.parent).writing() as add:
        for i in range(3):
            add({"key": f"k{i}", "scores": {"psnr": 20.0 + i}, "seconds": {"solve": 1.0}})


def read_store(path: Path) -> object:
    from pnpcm.bench.store import Store

    return list(Store(path.parent).rows()), Store(path.parent).keys()


TARGETS = {
    "png": Target("a.png", picture(), read_photo, with_png_sums, many=True),
    "png, 16 bits": Target("a.png", png16, read_photo, with_png_sums, many=True),
    "jpeg": Target("a.jpg", picture(quality=80), read_photo, many=True),
    "jpeg, progressive": Target("a.jpg", picture(progressive=True), read_photo, many=True),
    "jpeg, tables": Target("a.jpg", picture(quality=80), read_tables),
    "tiff": Target("a.tif", picture(compression="tiff_lzw"), read_photo, many=True),
    "tiff, 16 bits": Target("a.tif", tiff16, read_photo, many=True),
    "webp": Target("a.webp", picture(), read_photo, many=True),
    "webp, lossless": Target("a.webp", picture(lossless=True), read_photo, many=True),
    "bmp": Target("a.bmp", picture(), decode, many=True),
    "npy": Target("a.npy", lambda path: np.save(path, KSPACE), read_array),
    "npy, scan": Target("a.npy", lambda path: np.save(path, KSPACE), read_scan),
    "npz": Target("a.npz", npz, read_scan),
    "npz, inner": Target("a.npz", lambda path: np.save(path.open("wb"), KSPACE), read_scan, in_zip),
    "npz, training": Target("a.npz", npz_images, read_npz_source),
    "mat 5": Target("a.mat", mat5, read_scan, many=True),
    "mat 5, compressed": Target("a.mat", mat5_compressed, read_scan, many=True),
    "mat 7.3": Target("a.mat", mat73, read_scan, quick=60, many=True),
    "hdf5, fastMRI": Target("a.h5", fastmri, read_scan, quick=60, many=True),
    "hdf5, ISMRMRD": Target("a.mrd", ismrmrd, read_scan, quick=60, many=True),
    "hdf5, plain": Target("a.h5", plain_hdf5, read_plain, quick=60, many=True),
    "twix": Target("a.dat", twix, read_scan, quick=60, many=True),
    "cfl": Target("a.hdr", cfl, read_scan),
    "lmdb": Target("data.mdb", lmdb, read_lmdb),
    "measurement": Target("a.npz", measurement, read_measurement),
    "measurement, inner": Target("a.npz", description, read_measurement, in_measurement),
    "safetensors": Target("a.safetensors", safetensors, read_prior, quick=100, many=True),
    "pt": Target("a.pt", openai, read_prior, quick=60, many=True),
    "pt, KAIR": Target("dncnn_25.pth", kair, read_prior, quick=60, many=True),
    "pickle, LPIPS": Target("a.ckpt", arrays_pickle, read_pickle),
    "yaml, recipe": Target("a.yaml", copied(RECIPES / "mri-cm.yaml"), read_recipe, quick=30),
    "yaml, spec": Target("a.yaml", copied(SPECS / "small.yaml"), read_spec, quick=30),
    "json, preset": Target("a.json", preset, read_preset),
    "sqlite": Target("rows.sqlite", store, read_store, quick=60),
}
