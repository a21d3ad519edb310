"""Files of strangers: damaged, endless, larger than memory, or leading to other files.

One test per fault of e041efb, where each fails; all use the command line (``tests/hostile.py``).
"""

from __future__ import annotations

import io
import json
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from hostile import Ended, each_in, pnpcm_in

h5py = pytest.importorskip("h5py")
RANDOM = np.random.default_rng(0)
PIXELS = RANDOM.integers(0, 256, (24, 24, 3), dtype=np.uint8)
GIB = 2**30


# scans -------------------------------------------------------------------------------------------
def mat5(path: Path) -> None:
    """3 kB of MATLAB 5 that claim 2×3×1761607688×8 numbers, of type 255."""

    def element(kind: int, content: bytes) -> bytes:
        return struct.pack("<II", kind, len(content)) + content + bytes(-len(content) % 8)

    body = element(6, struct.pack("<II", 6, 0)) + element(
        5, struct.pack("<4i", 2, 3, 1761607688, 8)
    )
    body += element(1, b"kspace") + element(255, bytes(8 * 336))
    path.write_bytes(b"MATLAB 5.0".ljust(124) + b"\0\1IM" + element(14, body))


def bomb(path: Path) -> None:
    """An .npz file of 1 MB whose array has 1 GB: blocks of zeros, each compressed by itself."""
    count, block = 64, bytes(2**24)
    shape = (1, 8, 4096, count * len(block) // (8 * 8 * 4096))
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        head, {"descr": "<c8", "fortran_order": False, "shape": shape}
    )
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    start = packer.compress(head.getvalue()) + packer.flush(zlib.Z_FULL_FLUSH)
    zeros = packer.compress(block) + packer.flush(zlib.Z_FULL_FLUSH)
    data = start + zeros * count + packer.flush()
    sum_ = zlib.crc32(head.getvalue())
    for _ in range(count):
        sum_ = zlib.crc32(block, sum_)
    name, size = b"kspace.npy", len(head.getvalue()) + count * len(block)
    common = struct.pack("<HHHHHIIIHH", 20, 0, 8, 0, 33, sum_, len(data), size, len(name), 0)
    local = b"PK\3\4" + common + name + data
    entry = b"PK\1\2" + struct.pack("<H", 20) + common + struct.pack("<HHHII", 0, 0, 0, 0, 0) + name
    end = b"PK\5\6" + struct.pack("<HHHHIIH", 0, 0, 1, 1, len(entry), len(local), 0)
    path.write_bytes(local + entry + end)


def empty_chunks(path: Path) -> None:
    """4 million chunks that are not in the file, which HDF5 looks for one by one."""
    with h5py.File(path, "w") as file:
        file.create_dataset("kspace", (1, 1, 2000, 2000), "c8", chunks=(1, 1, 1, 1))


def large_chunk(path: Path) -> None:
    """One small slice in a chunk of 800 MB, inflated for each slice."""
    with h5py.File(path, "w") as file:
        data = file.create_dataset("kspace", (1000, 1, 320, 320), "c8", compression="gzip",
                                   chunks=(1000, 1, 320, 320))  # fmt: skip
        packer = zlib.compressobj(9)
        packed = b"".join(packer.compress(bytes(320 * 320 * 8)) for _ in range(1000))
        data.id.write_direct_chunk((0, 0, 0, 0), packed + packer.flush())


def endless(path: Path) -> None:
    """A million slices, of which the file has one."""
    values, header = kspace(path.parent)
    shape = values.shape[1:]
    with h5py.File(path, "w") as file:
        data = file.create_dataset("kspace", (10**6, *shape), "c8", chunks=(1, *shape))
        data[5 * 10**5] = values[0]
        file["ismrmrd_header"] = header


def large_shape(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file.create_dataset("kspace", (2, 40, 10**6, 10), "c8", chunks=(1, 1, 100, 10))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a good scan, ``good.h5``."""
    found = tmp_path_factory.mktemp("scans")
    words = ["--slices", "1", "--size", "32,32", "--coils", "2", "--mask", "gaussian1d"]
    words += ["--acceleration", "2", "--acs", "12"]
    done = pnpcm_in(found, "simulate-mri", "good.h5", *words)
    assert done.code == 0, done
    return found


def kspace(folder: Path) -> tuple[np.ndarray, str]:
    with h5py.File(folder / "good.h5") as file:
        return file["kspace"][()], file["ismrmrd_header"].asstr()[()]


def external_link(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file["kspace"] = h5py.ExternalLink("good.h5", "/kspace")
        file["ismrmrd_header"] = kspace(path.parent)[1]


def virtual(path: Path) -> None:
    values, header = kspace(path.parent)
    layout = h5py.VirtualLayout(values.shape, values.dtype)
    layout[:] = h5py.VirtualSource("good.h5", "kspace", values.shape)
    with h5py.File(path, "w") as file:
        file.create_virtual_dataset("kspace", layout)
        file["ismrmrd_header"] = header


def external_storage(path: Path) -> None:
    values, header = kspace(path.parent)
    secret = path.with_suffix(".secret")
    secret.write_bytes(values.tobytes())
    with h5py.File(path, "w") as file:
        place = [(str(secret), 0, values.nbytes)]
        file.create_dataset("kspace", values.shape, values.dtype, external=place)
        file["ismrmrd_header"] = header


def filtered(path: Path) -> None:
    values, header = kspace(path.parent)
    with h5py.File(path, "w") as file:
        file.create_dataset("kspace", data=values, compression="lzf")
        file["ismrmrd_header"] = header


SCANS = {
    "1 MATLAB 5, impossible shape.mat": mat5,
    "1 HDF5, impossible shape.h5": large_shape,
    "4 bomb.npz": bomb,
    "5 HDF5, many chunks.h5": empty_chunks,
    "5 HDF5, one large chunk.h5": large_chunk,
    "5 HDF5, endless slices.h5": endless,
    "5 HDF5, foreign filter.h5": filtered,
    "6 external link.h5": external_link,
    "6 virtual data set.h5": virtual,
    "6 external storage.h5": external_storage,
}


@pytest.fixture(scope="module")
def scans(folder: Path) -> dict[str, Ended]:
    """How ``mri`` ends on each of them."""
    for name, make in SCANS.items():
        make(folder / name)
    dry = {name: ["--dry-run"] for name in SCANS} | {"5 HDF5, endless slices.h5": []}
    ends = each_in(folder, [["mri", name, *dry[name]] for name in SCANS])
    return dict(zip(SCANS, ends, strict=True))


@pytest.mark.parametrize("name", SCANS)
def test_a_hostile_scan_is_refused(name: str, scans: dict[str, Ended]) -> None:
    """No crash, no hang, less than 1 GB of memory, no bytes of other files."""
    assert name in scans[name].refused()
    assert scans[name].peak < GIB


# photographs -------------------------------------------------------------------------------------
def png(width: int, height: int, rows: bytes, bits: int = 8) -> bytes:
    """A grey PNG file with these bytes as rows, complete and with correct check sums."""
    chunks = [(b"IHDR", struct.pack(">IIBBBBB", width, height, bits, 0, 0, 0, 0))]
    chunks += [(b"IDAT", zlib.compress(rows, 9)), (b"IEND", b"")]
    sums = [(name + body, struct.pack(">I", zlib.crc32(name + body))) for name, body in chunks]
    parts = [struct.pack(">I", len(body) - 4) + body + sum_ for body, sum_ in sums]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def encoded(format: str, **options: object) -> bytes:
    """A picture of 200×200 pixels."""
    values = RANDOM.integers(0, 256, (200, 200, 3), dtype=np.uint8)
    stream = io.BytesIO()
    Image.fromarray(values).save(stream, format, **options)
    return stream.getvalue()


def cut_jpeg(**options: object) -> bytes:
    """The first half of a JPEG file, with the mark of its end."""
    content = encoded("JPEG", quality=80, **options)
    return content[: len(content) // 2] + b"\xff\xd9"


CUT = {
    "3 10 of 200 rows.png": lambda: png(200, 200, bytes(201 * 10)),
    "3 10 of 200 rows, 1 bit.png": lambda: png(200, 200, bytes(26 * 10), 1),
    "3 half.jpg": cut_jpeg,
    "3 half, progressive.jpg": lambda: cut_jpeg(progressive=True),
    "4 few bytes of 20000×20000.png": lambda: png(20000, 20000, bytes(20001)),
    "4 few bytes of 20000×20000, 1 bit.png": lambda: png(20000, 20000, bytes(2501), 1),
    "4 claims 20000×20000.jpg": lambda: encoded("JPEG").replace(
        struct.pack(">HH", 200, 200), struct.pack(">HH", 20000, 20000), 1
    ),
}


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ended]:
    """How ``restore`` ends on each of them."""
    folder = tmp_path_factory.mktemp("pictures")
    for name, make in CUT.items():
        (folder / name).write_bytes(make())
    words = ["--task", "denoise", "--dry-run"]
    ends = each_in(folder, [["restore", name, *words] for name in CUT])
    return dict(zip(CUT, ends, strict=True))


@pytest.mark.parametrize("name", CUT)
def test_a_truncated_or_oversized_picture_is_refused(name: str, pictures: dict[str, Ended]) -> None:
    """No pixels are invented, and 100 bytes do not take gigabytes of memory."""
    assert name in pictures[name].refused()
    assert pictures[name].peak < GIB


# checkpoints -------------------------------------------------------------------------------------
HEADER = {
    "format": 1,
    "kind": "edm",
    "network": {
        "type": "UNetConfig", "image_size": None, "in_channels": 3, "model_channels": 8,
        "channel_mult": [1], "num_res_blocks": 1, "attention_ds": [], "norm": False,
        "middle_attention": False, "use_scale_shift_norm": True,
    },
    "options": {"sigma_data": 0.5, "sigma_min": 0.002, "sigma_max": 80.0},
    "info": {},
}  # fmt: skip
DEEP = json.dumps(HEADER | {"info": 0}).replace('"info": 0', f'"info": {"[" * 10**5 + "]" * 10**5}')


def network(**changes: object) -> str:
    return json.dumps(HEADER | {"network": HEADER["network"] | changes})  # type: ignore[operator]


PRIORS = {
    "7 10⁴ blocks": network(num_res_blocks=10**4),
    "7 2000 levels": network(channel_mult=[1] * 2000, num_res_blocks=4),
    "7 infinite multiplier": network(channel_mult=[1, float("inf")]),
    "7 deep JSON": DEEP,
}
"""Headers of checkpoints that have one tensor."""


def checkpoint(path: Path, header: str) -> None:
    save_file({"x": torch.zeros(1)}, path, metadata={"pnpcm": header})


@pytest.fixture(scope="module")
def priors(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ended]:
    """How ``restore`` ends with each of them, and ``priors list`` with all in the cache."""
    folder = tmp_path_factory.mktemp("home")
    Image.fromarray(PIXELS).save(folder / "a.png")
    (folder / "priors").mkdir()
    for name, header in PRIORS.items():
        checkpoint(folder / "priors" / f"{name}.safetensors", header)
    words = ["restore", "a.png", "--task", "denoise", "--dry-run", "--prior"]
    commands = [[*words, f"priors/{name}.safetensors"] for name in PRIORS]
    ends = each_in(folder, [*commands, ["priors", "list"]], PNPCM_HOME=str(folder))
    return dict(zip([*PRIORS, "list"], ends, strict=True))


@pytest.mark.parametrize("name", PRIORS)
def test_a_hostile_checkpoint_is_refused(name: str, priors: dict[str, Ended]) -> None:
    assert name in priors[name].refused()
    assert priors[name].peak < GIB


def test_7_bad_files_in_the_cache_do_not_break_the_list(priors: dict[str, Ended]) -> None:
    assert priors["list"].code == 0, priors["list"]
    assert "natural" in priors["list"].out
    assert "infinite multiplier" in priors["list"].out


# databases ---------------------------------------------------------------------------------------
READ = """
from pathlib import Path
from pnpcm.errors import PnPCMError
from pnpcm.training.sources import Lmdb
try:
    source = Lmdb(Path(sys.argv[1]))
    [source.image(i, None) for i in range(len(source))]
except PnPCMError as error:
    sys.exit(f"pnpcm: {error}" if "\\n" not in str(error) else 3)
"""


def test_1_a_damaged_lmdb_does_not_end_the_process(tmp_path: Path) -> None:
    """The library reads a page behind the end of the file from its memory map: SIGBUS."""
    lmdb = pytest.importorskip("lmdb")
    stream = io.BytesIO()
    Image.fromarray(PIXELS).save(stream, "PNG")
    with lmdb.open(str(tmp_path), map_size=2**24) as base, base.begin(write=True) as write:
        for i in range(300):
            write.put(b"%03d" % i, stream.getvalue())
    path = tmp_path / "data.mdb"
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    (ended,) = each_in(tmp_path, [["", str(tmp_path)][1:]], call=READ)
    assert str(ended.code).startswith("pnpcm: "), ended
    assert "data.mdb" in str(ended.code)
