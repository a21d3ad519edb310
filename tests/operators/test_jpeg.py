"""JPEG: numbers of docs/method.md §12.2, Pillow as an independent codec, files, refusals."""

from __future__ import annotations

import io
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.ndimage import correlate1d
from torch import Tensor

import pnpcm
from pnpcm.errors import ArgumentError, ShapeError
from pnpcm.operators import jpeg_codec as codec
from pnpcm.operators.jpeg import JPEG

PICTURES = Path(pnpcm.__file__).parent / "data"


def gen(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def wave_image(dtype: torch.dtype = torch.float64) -> Tensor:
    """Image X of docs/method.md §12.1."""
    axes = (torch.arange(n, dtype=torch.float64) for n in (3, 256, 256))
    c, i, j = torch.meshgrid(*axes, indexing="ij")
    wave = 0.6 * torch.sin(2 * math.pi * (i * (c + 1) + 2 * j) / 96)
    return (wave + 0.3 * torch.cos(2 * math.pi * (i - j) / (7 + c)))[None].to(dtype)


def natural_image(height: int = 96, width: int = 128) -> Tensor:
    """Correlated colours, gradients, a disk with an edge: smooth as photographs are."""
    i, j = torch.meshgrid(
        torch.arange(height, dtype=torch.float64) / height,
        torch.arange(width, dtype=torch.float64) / width,
        indexing="ij",
    )
    shade = 0.5 + 0.3 * torch.sin(3 * i + 2 * j) + 0.1 * torch.cos(9 * i * j)
    disk = torch.sigmoid((0.3 - torch.hypot(i - 0.5, j - 0.5)) * 40)
    rgb = torch.stack((shade + 0.15 * disk, shade, shade - 0.2 * disk))
    return (2 * rgb.clamp(0, 1) - 1)[None]


def pixels(x: Tensor) -> np.ndarray:
    return ((x[0].permute(1, 2, 0) + 1) * 127.5).round().byte().numpy()


def psnr(a: Tensor, b: Tensor) -> float:
    return 10 * math.log10(4 / float((a - b).square().mean()))


def save(path: Path, x: Tensor, **options: object) -> Path:
    array = pixels(x)
    Image.fromarray(array[..., 0] if array.shape[-1] == 1 else array).save(path, **options)
    return path


# numbers ---------------------------------------------------------------------------------------
@pytest.mark.parametrize(("dtype", "rel"), [(torch.float64, 1e-6), (torch.float32, 1e-4)])
def test_codec_gives_the_golden_numbers(dtype: torch.dtype, rel: float) -> None:
    y = JPEG(5).acquire(wave_image(dtype)).double()
    assert float(y.norm()) == pytest.approx(210.0912, rel=rel)
    assert float(y.sum()) == pytest.approx(1814.555, rel=rel)
    assert float(y[0, 0, 0, 0]) == pytest.approx(0.65586, abs=1e-5)
    assert float(y[0, 1, 100, 37]) == pytest.approx(-0.15139, abs=1e-5)
    assert float(y.min()) == pytest.approx(-1.6498, abs=1e-4)
    assert float(y.max()) == pytest.approx(1.7721, abs=1e-4)


@pytest.mark.parametrize(("dtype", "rel"), [(torch.float64, 5e-6), (torch.float32, 1e-4)])
def test_surrogate_gives_the_golden_numbers(dtype: torch.dtype, rel: float) -> None:
    y = JPEG(5).A(wave_image(dtype)).double()
    assert float(y.norm()) == pytest.approx(197.4690, rel=rel)
    assert float(y.sum()) == pytest.approx(1029.50, abs=0.02)
    assert float(y[0, 1, 100, 37]) == pytest.approx(-0.17067, abs=1e-5)
    assert float(y.min()) == pytest.approx(-1.00022, abs=1e-5)
    assert float(y.max()) == pytest.approx(1.00066, abs=1e-5)


def test_tables_of_quality_5_are_ten_times_annex_k() -> None:
    luminance, chrominance = JPEG(5).tables.tolist()
    heads = [[160, 110, 100, 160, 240], [120, 120, 140, 190], [140, 130, 160, 240], [140, 170, 220]]
    heads += [[180, 220], [240], [], []]
    assert luminance == [row + [255] * (8 - len(row)) for row in heads]
    heads = [[170, 180, 240], [180, 210], [240], [], [], [], [], []]
    assert chrominance == [row + [255] * (8 - len(row)) for row in heads]


def test_soft_tables_of_quality_5_follow_the_soft_clip() -> None:
    soft = codec.soft_tables(5)
    assert float(soft[0, 0, 0]) == 160
    assert float(soft[0, 5, 6]) == pytest.approx(255 + (1130 - 255) / 1000)
    assert float((soft - codec.quality_tables(5)).max()) == pytest.approx(0.955)


@pytest.mark.parametrize("quality", [1, 2, 3, 5, 7, 13, 30, 49, 50, 51, 75, 90, 99, 100])
def test_tables_are_those_of_libjpeg_in_natural_order(quality: int, tmp_path: Path) -> None:
    path = save(tmp_path / "a.jpg", natural_image(16, 16), quality=quality)
    assert torch.equal(JPEG.from_file(path).tables, JPEG(quality).tables)


def test_dct_is_orthonormal_and_starts_with_the_mean() -> None:
    dct = codec.dct_matrix()
    torch.testing.assert_close(dct @ dct.T, torch.eye(8, dtype=torch.float64))
    torch.testing.assert_close(dct[0], torch.full((8,), 8**-0.5, dtype=torch.float64))
    assert float(dct[1, 0]) == pytest.approx(0.5 * math.cos(math.pi / 16))


def test_soft_round_worked_out_by_hand() -> None:
    v = torch.tensor([2.0, 2.4, 2.6, -1.2], dtype=torch.float64, requires_grad=True)
    r = codec.soft_round(v)
    torch.testing.assert_close(r.detach(), torch.tensor([2.0, 2.064, 2.936, -1.008]).double())
    (slope,) = torch.autograd.grad(r.sum(), v)
    torch.testing.assert_close(slope, torch.tensor([0.0, 0.48, 0.48, 0.12]).double())


def test_chroma_sampling_worked_out_by_hand() -> None:
    plane = torch.arange(16, dtype=torch.float64).reshape(1, 1, 4, 4)
    assert codec.decimate(plane, (2, 2)).flatten().tolist() == [0, 2, 8, 10]
    assert codec.decimate(plane, (1, 2)).shape == (1, 1, 4, 2)
    assert codec.cell_mean(plane, (2, 2)).flatten().tolist() == [2.5, 4.5, 10.5, 12.5]
    few = torch.tensor([[[[1.0, 2.0]]]])
    assert codec.replicate(few, (2, 2)).flatten().tolist() == [1, 1, 2, 2] * 2
    assert codec.smooth_up(few, (1, 2)).flatten().tolist() == [1.0, 1.25, 1.75, 2.0]
    spike = torch.zeros(1, 1, 8, 8, dtype=torch.float64)
    spike[..., 4, 4] = 1
    down = codec.smooth_down(spike, (2, 2))
    near, far = 0.10651 + 0.78699, 0.10651  # what of the taps falls into a cell
    assert float(down[0, 0, 2, 2]) == pytest.approx(near * near / 4, abs=1e-5)
    assert float(down[0, 0, 1, 2]) == pytest.approx(far * near / 4, abs=1e-5)


# against Pillow --------------------------------------------------------------------------------
@pytest.mark.parametrize(("name", "mode"), [("4:4:4", 0), ("4:2:2", 1), ("4:2:0", 2)])
def test_codec_agrees_with_pillow(name: str, mode: int) -> None:
    x = natural_image()
    buffer = io.BytesIO()
    Image.fromarray(pixels(x)).save(buffer, "JPEG", quality=5, subsampling=mode)
    decoded = torch.from_numpy(np.array(Image.open(buffer))).double().permute(2, 0, 1)[None]
    y = JPEG(5, subsampling=name).acquire(x).clamp(-1, 1)
    assert psnr(y, decoded / 127.5 - 1) > 30
    assert psnr(y, decoded / 127.5 - 1) > psnr(x, y) + 3  # nearer to Pillow than to the image


def through_pillow(image: Image.Image, **options: object) -> Tensor:
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", **options)
    return torch.from_numpy(np.array(Image.open(buffer))).double()


@pytest.mark.parametrize("picture", ["Wine_by_Jakkub_Mede", "Picture_0B_by_freespace"])
@pytest.mark.parametrize(("name", "mode"), [("4:4:4", 0), ("4:2:2", 1), ("4:2:0", 2)])
@pytest.mark.parametrize("quality", [5, 10, 50])
def test_eight_bit_is_pillow_but_for_ties(picture: str, name: str, mode: int, quality: int) -> None:
    """Beyond ±2 lie only blocks with a coefficient whose integer DCT tips over a half."""
    with Image.open(PICTURES / f"{picture}.png") as file:
        image = file.convert("RGB").crop((0, 0, 251, 243))  # no whole cells
    pixels = torch.from_numpy(np.array(image)).double()
    decoded = through_pillow(image, quality=quality, subsampling=mode)
    operator = JPEG(quality, subsampling=name, eight_bit=True)
    y = operator.acquire((pixels / 127.5 - 1).permute(2, 0, 1)[None])[0].permute(1, 2, 0)
    v = (y + 1) * 127.5
    assert float((v - v.round()).abs().max()) < 1e-9
    assert float(v.min()) >= 0
    assert float(v.max()) <= 255
    gap = (v - decoded).abs()
    assert float((gap < 0.5).double().mean()) > (0.96 if quality == 50 else 0.99)
    assert float((gap < 2.5).double().mean()) > (0.993 if quality == 50 else 0.998)


@pytest.mark.parametrize("quality", [5, 10, 50])
def test_eight_bit_grey_is_pillow(quality: int) -> None:
    x = natural_image(43, 50)[:, :1]
    decoded = through_pillow(Image.fromarray(pixels(x)[..., 0]), quality=quality)
    for dtype in (torch.float32, torch.float64):
        y = JPEG(quality, eight_bit=True).acquire(x.to(dtype))
        assert y.dtype == dtype
        assert float(((y[0, 0].double() + 1) * 127.5 - decoded).abs().max()) < 1.01


def test_libjpeg_chroma_is_nearest_to_a_real_file(tmp_path: Path) -> None:
    with Image.open(PICTURES / "Picture_0B_by_freespace.png") as file:
        image = file.convert("RGB")
    image.save(tmp_path / "a.jpg", quality=10, subsampling=2)
    decoded = through_pillow(image, quality=10, subsampling=2).permute(2, 0, 1)[None] / 127.5 - 1
    x = torch.from_numpy(np.array(image)).double().permute(2, 0, 1)[None] / 127.5 - 1
    near = {
        chroma: psnr(JPEG.from_file(tmp_path / "a.jpg", chroma=chroma).A(x), decoded)  # type: ignore[arg-type]
        for chroma in ("codec", "smooth", "libjpeg")
    }
    assert near["libjpeg"] > near["smooth"] + 1 > near["codec"] + 5
    real = JPEG(10, chroma="libjpeg")
    assert psnr(real.acquire(x), decoded) > psnr(JPEG(10).acquire(x), decoded) + 5
    assert JPEG.from_file(tmp_path / "a.jpg", eight_bit=True).eight_bit


def test_quality_100_hardly_changes_the_image() -> None:
    x = natural_image()
    assert psnr(JPEG(100, subsampling="4:4:4").acquire(x), x) > 45
    assert psnr(JPEG(100, subsampling="4:4:4").A(x), x) > 45


def test_surrogate_is_near_the_codec_and_nearer_with_its_chroma() -> None:
    x = natural_image()
    y = JPEG(5).acquire(x)
    smooth, matching = JPEG(5).A(x), JPEG(5, chroma="codec").A(x)
    assert psnr(smooth, y) > 28
    assert not torch.equal(smooth, matching)
    # with 4:4:4 there is no chroma sampling, so the two surrogates are one
    full = JPEG(5, subsampling="4:4:4").A(x)
    assert torch.equal(full, JPEG(5, subsampling="4:4:4", chroma="codec").A(x))


def test_codec_chroma_surrogate_inherits_decimation() -> None:
    """Chroma off the even grid is invisible to the codec, and so to this surrogate."""
    x = torch.zeros(1, 3, 16, 16, dtype=torch.float64)
    tint = torch.linalg.inv(codec.COLOUR_SMOOTH)[:, 1] * 0.2  # pure Cb
    x[0, :, 1::2, 1::2] += tint[:, None, None]
    blind = JPEG(50, chroma="codec").A(x)
    torch.testing.assert_close(blind, JPEG(50, chroma="codec").A(torch.zeros_like(x)))
    assert float((JPEG(50).A(x) - JPEG(50).A(torch.zeros_like(x))).abs().max()) > 1e-2


# files -----------------------------------------------------------------------------------------
@pytest.mark.parametrize(("mode", "name"), [(0, "4:4:4"), (1, "4:2:2"), (2, "4:2:0")])
@pytest.mark.parametrize("progressive", [False, True])
def test_from_file_reads_sampling(tmp_path: Path, mode: int, name: str, progressive: bool) -> None:
    options = {"quality": 20, "subsampling": mode, "progressive": progressive}
    operator = JPEG.from_file(save(tmp_path / "a.jpg", natural_image(), **options), chroma="codec")
    assert operator.subsampling == name
    assert operator.chroma == "codec"
    assert torch.equal(operator.tables, JPEG(20).tables)


def test_from_file_reads_own_tables(tmp_path: Path) -> None:
    own = [list(range(1, 65)), list(range(64, 0, -1))]
    path = save(tmp_path / "a.jpg", natural_image(), qtables=own)
    operator = JPEG.from_file(path)
    assert operator.quality is None
    assert operator.tables.reshape(2, 64).tolist() == own


def test_from_file_reads_grey(tmp_path: Path) -> None:
    x = natural_image()[:, :1]
    operator = JPEG.from_file(str(save(tmp_path / "a.jpg", x, quality=40)))
    assert torch.equal(operator.tables[0], JPEG(40).tables[0])
    with Image.open(tmp_path / "a.jpg") as image:
        decoded = torch.from_numpy(np.array(image)).double()[None, None] / 127.5 - 1
    assert psnr(operator.acquire(x), decoded) > 45  # luminance has no sampling to differ in


def test_from_file_recompresses_to_itself(tmp_path: Path) -> None:
    """Decoded values lie on the grid of their own tables: the codec returns them."""
    path = save(tmp_path / "a.jpg", natural_image()[:, :1], quality=30)
    with Image.open(path) as image:
        decoded = torch.from_numpy(np.array(image)).double()[None, None] / 127.5 - 1
    again = JPEG.from_file(path).acquire(decoded)
    assert float((again - decoded).abs().max()) < 2 / 127.5
    assert float((JPEG(5).acquire(decoded) - decoded).abs().max()) > 4 / 127.5


def test_from_file_refuses_what_is_no_jpeg(tmp_path: Path) -> None:
    x = natural_image(16, 16)
    with pytest.raises(ArgumentError, match="PNG file, expected a JPEG"):
        JPEG.from_file(save(tmp_path / "a.png", x))
    (tmp_path / "text.jpg").write_text("no image")
    with pytest.raises(ArgumentError, match="cannot be read as JPEG"):
        JPEG.from_file(tmp_path / "text.jpg")
    Image.fromarray(pixels(x)).convert("CMYK").save(tmp_path / "cmyk.jpg")
    with pytest.raises(ArgumentError, match="CMYK"):
        JPEG.from_file(tmp_path / "cmyk.jpg")
    with pytest.raises(FileNotFoundError):
        JPEG.from_file(tmp_path / "missing.jpg")


def test_from_file_refuses_rgb_stored_without_ycbcr(tmp_path: Path) -> None:
    path = save(tmp_path / "a.jpg", natural_image(16, 16), keep_rgb=True)
    with pytest.raises(ArgumentError, match="without YCbCr"):
        JPEG.from_file(path)


def test_from_file_refuses_unknown_sampling(tmp_path: Path) -> None:
    path = save(tmp_path / "a.jpg", natural_image(16, 16), subsampling=0)
    data = bytearray(path.read_bytes())
    frame = data.index(b"\xff\xc0")
    assert data[frame + 11] == 0x11  # sampling factors of the first component
    data[frame + 11] = 0x41  # 4:1:1
    path.write_bytes(bytes(data))
    with pytest.raises(ArgumentError, match="sampling 4:4:4"):
        JPEG.from_file(path)
    data[frame + 11] = 0x12  # 4:4:0, which Pillow reads but does not write
    path.write_bytes(bytes(data))
    assert JPEG.from_file(path).subsampling == "4:4:0"


# laws ------------------------------------------------------------------------------------------
@pytest.mark.parametrize("subsampling", list(codec.SUBSAMPLING))
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", [(1, 1), (5, 23), (16, 17), (33, 16)])
def test_any_size(subsampling: str, channels: int, size: tuple[int, int]) -> None:
    x = 2 * torch.rand((2, channels, *size), generator=gen()) - 1
    operator = JPEG(30, subsampling=subsampling)
    for y in (operator.A(x), operator.acquire(x), JPEG(30, chroma="codec").A(x)):
        assert y.shape == x.shape
        assert bool(y.isfinite().all())


def test_padding_replicates() -> None:
    """An odd-sized image is coded as its replicated extension, then cropped."""
    x = natural_image(30, 37)
    padded = torch.nn.functional.pad(x, (0, 48 - 37, 0, 2), mode="replicate")
    operator = JPEG(10)
    torch.testing.assert_close(operator.A(x), operator.A(padded)[..., :30, :37])
    torch.testing.assert_close(operator.acquire(x), operator.acquire(padded)[..., :30, :37])


def test_blocks_do_not_see_each_other_in_the_codec() -> None:
    x = natural_image(32, 32)
    changed = x.clone()
    changed[..., 16:, 16:] *= -1
    a, b = JPEG(10).acquire(x), JPEG(10).acquire(changed)
    assert torch.equal(a[..., :16, :], b[..., :16, :])
    assert not torch.equal(a[..., 16:, 16:], b[..., 16:, 16:])


@pytest.mark.parametrize("chroma", ["smooth", "codec", "libjpeg"])
@pytest.mark.parametrize("subsampling", list(codec.SUBSAMPLING))
def test_rows_depend_on_no_more_than_the_operator_says(chroma: str, subsampling: str) -> None:
    operator = JPEG(10, subsampling=subsampling, chroma=chroma)  # type: ignore[arg-type]
    cell, margin = operator.row_cell, operator.row_margin
    assert cell == (16 if subsampling in ("4:2:0", "4:4:0") else 8)
    assert (margin > 0) == (cell == 16 and chroma != "codec")
    x = 2 * torch.rand((1, 3, 96, 32), generator=gen(), dtype=torch.float64) - 1
    changed = x.clone()
    changed[..., 48:, :] *= -1
    for f in (operator.A, operator.acquire):
        moved = (f(x) - f(changed)).abs().amax((0, 1, 3)).nonzero().flatten()
        assert int(moved[0]) >= 48 - margin
    seen = (operator.A(x) - operator.A(changed)).abs().amax((0, 1, 3)).nonzero().flatten()
    assert (int(seen[0]) < 48) == (margin > 0)


def test_cells_are_coefficients_in_steps() -> None:
    x = natural_image(32, 48)
    operator = JPEG(30, subsampling="4:4:4", chroma="libjpeg")
    y = operator.acquire(x)
    steps = operator.cells(y)
    assert steps.shape == (1, 3 * 32 * 48)
    assert float((steps - steps.round()).abs().max()) < 1e-6  # decoded values lie on the grid
    assert float((steps - operator.cells(x)).abs().max()) < 0.5 + 1e-6
    assert JPEG(30).cells(x).shape == (1, 32 * 48 * 3 // 2)
    grey = JPEG(30).cells(torch.full((1, 1, 8, 8), 1.0, dtype=torch.float64))
    assert float(grey[0, 0]) == pytest.approx(8 * 127 / int(JPEG(30).tables[0, 0, 0]))
    assert float(grey[0, 1:].abs().max()) < 1e-9


@pytest.mark.parametrize("chroma", ["smooth", "codec", "libjpeg"])
def test_gradient_is_that_of_finite_differences(chroma: str) -> None:
    # coefficients stay away from half-integers, where the cubic jumps
    operator = JPEG(60, chroma=chroma)  # type: ignore[arg-type]
    x = (0.3 * torch.rand((1, 3, 2, 3), generator=gen(3), dtype=torch.float64)).requires_grad_()
    assert torch.autograd.gradcheck(operator.A, x, eps=1e-7, atol=1e-4)


def test_gradient_reaches_the_image_at_low_quality() -> None:
    operator = JPEG(5)
    x = natural_image()
    product = operator.A_vjp(x, operator.A(x) - x)
    assert bool(product.isfinite().all())
    assert float(product.norm()) > 0


def test_batch_equals_singles() -> None:
    operator, x = JPEG.example(gen(), batch=3)
    for f in (operator.A, operator.acquire):
        singles = torch.cat([f(image[None]) for image in x])
        torch.testing.assert_close(f(x), singles, rtol=0, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dtype_is_kept_and_arguments_unchanged(dtype: torch.dtype) -> None:
    operator, x = JPEG.example(gen())
    x = x.to(dtype)
    before = x.clone()
    first = operator.A(x)
    assert first.dtype == operator.acquire(x).dtype == dtype
    assert torch.equal(x, before)
    assert torch.equal(first, operator.A(x))
    z = operator.z_start(x, None)
    assert torch.equal(z, x)


def test_tables_replace_quality() -> None:
    x = natural_image()
    own = JPEG(tables=codec.quality_tables(35).tolist())
    assert own.quality is None
    assert torch.equal(own.acquire(x), JPEG(35).acquire(x))
    torch.testing.assert_close(own.A(x), JPEG(35).A(x))
    coarse = JPEG(tables=(np.full((8, 8), 60000), np.full((8, 8), 60000)))  # 16-bit tables
    torch.testing.assert_close(coarse.acquire(x), torch.full_like(x, 128 / 127.5 - 1))


# refusals --------------------------------------------------------------------------------------
@pytest.mark.parametrize("quality", [0, 101, -3, 5.5, True, "5", None])
def test_quality_outside_1_to_100_is_refused(quality: object) -> None:
    with pytest.raises(ArgumentError, match="quality"):
        JPEG(quality)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "tables",
    [
        (torch.zeros(8, 8), torch.ones(8, 8)),
        (torch.ones(8, 8), torch.full((8, 8), 65536)),
        (torch.ones(8, 8), torch.full((8, 8), 1.5)),
        (torch.ones(8, 8), torch.full((8, 8), float("nan"))),
        (torch.ones(64), torch.ones(64)),
        (torch.ones(8, 8), torch.ones(4, 4)),
        (torch.ones(8, 8),),
        7,
        ("a", "b"),
    ],
)
def test_bad_tables_are_refused(tables: object) -> None:
    with pytest.raises(ArgumentError, match="tables"):
        JPEG(tables=tables)  # type: ignore[arg-type]


def test_unknown_options_are_refused() -> None:
    with pytest.raises(ArgumentError, match=r"subsampling is '4:1:1'.*4:2:0"):
        JPEG(subsampling="4:1:1")
    with pytest.raises(ArgumentError, match="chroma is 'sharp'"):
        JPEG(chroma="sharp")  # type: ignore[arg-type]


@pytest.mark.parametrize("shape", [(1, 2, 8, 8), (1, 4, 8, 8), (3, 8, 8), (1, 3, 0, 8)])
def test_other_shapes_are_refused(shape: tuple[int, ...]) -> None:
    for f in (JPEG().A, JPEG().acquire):
        with pytest.raises(ShapeError, match="takes"):
            f(torch.zeros(shape))


@pytest.mark.parametrize("factors", [(1, 1), (1, 2), (2, 1), (2, 2)])
def test_smooth_sampling_is_a_filter_and_a_mean(factors: tuple[int, int]) -> None:
    """Against SciPy's 3-tap filter with a mirrored border, then the mean of each cell."""
    plane = torch.rand((2, 2, 16, 24), generator=gen(), dtype=torch.float64)
    taps = np.exp([-2.0, 0.0, -2.0])
    filtered = plane.numpy()
    for axis, factor in zip((-2, -1), factors, strict=True):
        if factor > 1:
            filtered = correlate1d(filtered, taps / taps.sum(), axis=axis, mode="mirror")
    cells = filtered.reshape(2, 2, 16 // factors[0], factors[0], 24 // factors[1], factors[1])
    small = codec.smooth_down(plane, factors)
    assert np.allclose(small.numpy(), cells.mean((3, 5)), rtol=0, atol=1e-14)
