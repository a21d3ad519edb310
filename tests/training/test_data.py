"""Sources and samples: pixels, order by seed, error messages."""

import io
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from pnpcm.errors import ArgumentError, ShapeError, UnknownNameError
from pnpcm.training.data import SampleNumbers, Samples, SourceConfig, generator_of, loader
from pnpcm.training.sources import FastMRI, Folder, Lmdb, Magnitude, Npz, combine, shrink


def pictures(folder: Path, n: int = 5, size: tuple[int, int] = (12, 10)) -> np.ndarray:
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (n, size[1], size[0], 3), dtype=np.uint8)
    for i, array in enumerate(pixels):
        Image.fromarray(array).save(folder / f"{i}.png")
    return pixels


def test_folder_reads_pictures_in_order(tmp_path: Path) -> None:
    pixels = pictures(tmp_path)
    (tmp_path / "notes.txt").write_text("no picture")
    source = Folder(tmp_path)
    assert len(source) == 5
    assert Folder(tmp_path, start=-2).paths == source.paths[3:]
    assert Folder(tmp_path, stop=-2).paths == source.paths[:3]
    for i in range(5):
        image = source.image(i, torch.Generator())
        assert np.array_equal(image.permute(1, 2, 0).numpy(), pixels[i])


def test_lmdb_reads_lsun_layout(tmp_path: Path) -> None:
    import lmdb

    pixels = np.random.default_rng(1).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, format="PNG")
    with lmdb.open(str(tmp_path / "db"), map_size=2**20) as env, env.begin(write=True) as t:
        t.put(b"first", buffer.getvalue())
    source = Lmdb(tmp_path / "db")
    assert len(source) == 1
    assert np.array_equal(source.image(0, torch.Generator()).permute(1, 2, 0).numpy(), pixels)


def test_npz_holds_out_what_the_recipe_names(tmp_path: Path) -> None:
    images = np.arange(6, dtype=np.uint8)[:, None, None] * np.ones((6, 4, 4), dtype=np.uint8)
    np.savez(tmp_path / "a.npz", images=images, subject=np.array([1, 1, 2, 3, 3, 4]))
    kept = Npz(tmp_path / "a.npz", exclude={"subject": [3, 4]})
    assert [int(kept.image(i, torch.Generator()).max()) for i in range(len(kept))] == [0, 1, 2]
    only = Npz(tmp_path / "a.npz", only={"subject": [3]})
    assert [int(only.image(i, torch.Generator()).max()) for i in range(len(only))] == [3, 4]


def test_magnitude_keeps_the_magnitude_and_draws_a_phase(tmp_path: Path) -> None:
    magnitude = np.random.default_rng(0).integers(1, 255, (1, 16, 16), dtype=np.uint8)
    np.savez(tmp_path / "m.npz", images=magnitude)
    source = Magnitude(tmp_path / "m.npz", level=0.8, jitter=0.0)
    a, b = (source.image(0, torch.Generator().manual_seed(seed)) for seed in (0, 1))
    expected = magnitude[0] * (0.8 / np.quantile(magnitude[0], 0.995))
    for x in (a, b):
        np.testing.assert_allclose(torch.linalg.vector_norm(x, dim=0), expected, rtol=1e-4)
    assert not torch.allclose(a, b)
    phase = torch.atan2(a[1], a[0])
    assert float((phase[:, 1:] - phase[:, :-1]).abs().median()) < 0.5  # smooth


def test_magnitude_at_other_resolutions_and_contrasts(tmp_path: Path) -> None:
    rows, columns = np.mgrid[:40, :40]
    ramp = (4 + 3 * rows + 2 * columns).astype(np.uint8)[None]
    np.savez(tmp_path / "m.npz", images=ramp)
    order = np.argsort(ramp[0].ravel(), kind="stable")
    plain = Magnitude(tmp_path / "m.npz", jitter=0.0)
    source = Magnitude(tmp_path / "m.npz", jitter=0.0, contrast=1.0, spots=2)
    curves = []
    for seed in range(4):
        same = plain.image(0, torch.Generator().manual_seed(seed)).square().sum(0).sqrt()
        other = source.image(0, torch.Generator().manual_seed(seed)).square().sum(0).sqrt()
        assert np.all(np.diff(other.numpy().ravel()[order]) > -1e-6)  # an increasing curve
        curves.append(float((other - same).abs().max()))
    assert max(curves) > 0.05
    assert len(set(curves)) == 4

    source = Magnitude(tmp_path / "m.npz", jitter=0.0, zoom=(0.5, 2.0))
    sides = [source.image(0, torch.Generator().manual_seed(s)).shape[-1] for s in range(30)]
    assert 20 <= min(sides) < 25
    assert 64 < max(sides) <= 80
    with pytest.raises(ArgumentError, match="zoom"):
        Magnitude(tmp_path / "m.npz", zoom=(2.0, 1.0))


def test_fastmri_drops_ends_and_scales_to_one(tmp_path: Path) -> None:
    import h5py

    g = torch.Generator().manual_seed(0)
    images = torch.randn((13, 24, 20), generator=g, dtype=torch.complex64)
    with h5py.File(tmp_path / "knee.h5", "w") as file:
        centred = np.fft.ifftshift(images.numpy(), (-2, -1))
        kspace = np.fft.fftshift(np.fft.fft2(centred, norm="ortho"), (-2, -1))
        file["kspace"] = kspace.astype(np.complex64)
    source = FastMRI(tmp_path, size=16, skip=5)
    assert len(source) == 3
    x = source.image(0, g)
    centre = images[5, 4:20, 2:18]
    expected = torch.view_as_real(centre / centre.abs().max()).permute(2, 0, 1)
    torch.testing.assert_close(x, expected, rtol=1e-4, atol=1e-5)


def test_coils_combine_to_the_image_up_to_a_smooth_phase() -> None:
    from pnpcm.mri import phantom, simulate_scan

    magnitude = phantom((48, 48))
    scan = simulate_scan(
        magnitude, n_coils=4, phase=0.0, generator=torch.Generator().manual_seed(0)
    )
    x = combine(scan.kspace, 48, 24)
    assert x.shape == (2, 48, 48)
    found = torch.linalg.vector_norm(x, dim=0)
    wanted = magnitude / magnitude.max()
    assert float((found - wanted).square().mean().sqrt()) < 0.05


def test_shrink_is_openai_s_recipe() -> None:
    """Box-halve while twice as large, then bicubic, then the centre."""
    pixels = np.random.default_rng(0).integers(0, 256, (40, 64, 3), dtype=np.uint8)
    out = np.asarray(shrink(Image.fromarray(pixels), 10)).astype(float)
    boxes = pixels.astype(float)
    for _ in range(2):
        boxes = boxes.reshape(boxes.shape[0] // 2, 2, boxes.shape[1] // 2, 2, 3).mean((1, 3))
    assert out.shape == (10, 10, 3)
    assert np.abs(out - boxes[:, 3:13]).max() <= 2.0  # two halvings, two passes each, rounded


def samples(folder: Path, **options: object) -> Samples:
    pictures(folder)
    return Samples([(Folder(folder), 2)], seed=3, crop=8, **options)  # type: ignore[arg-type]


def test_sample_n_depends_on_seed_and_n_alone(tmp_path: Path) -> None:
    first, second = samples(tmp_path), samples(tmp_path)
    forward = [first[n][0] for n in range(25)]
    for n in reversed(range(25)):
        assert torch.equal(second[n][0], forward[n])
    other = Samples([(Folder(tmp_path), 2)], seed=4, crop=8)
    assert not all(torch.equal(other[n][0], forward[n]) for n in range(10))


def test_an_epoch_shows_every_image_as_often_as_asked(tmp_path: Path) -> None:
    np.savez(
        tmp_path / "a.npz",
        images=np.full((3, 4, 4), 1, np.uint8) * np.arange(3, dtype=np.uint8)[:, None, None],
    )
    np.savez(tmp_path / "b.npz", images=np.full((2, 4, 4), 10, np.uint8))
    both = Samples([(Npz(tmp_path / "a.npz"), 2), (Npz(tmp_path / "b.npz"), 1)], seed=0)
    for epoch in range(3):
        values = sorted(round(float((both[epoch * 8 + n][0].max() + 1) * 127.5)) for n in range(8))
        assert values == [0, 0, 1, 1, 2, 2, 10, 10]


def test_samples_are_crops_of_the_picture_in_range(tmp_path: Path) -> None:
    plain = samples(tmp_path, flip="none")
    pixels = pictures(tmp_path).astype(np.float32) / 127.5 - 1
    for n in range(10):
        x = plain[n][0].permute(1, 2, 0).numpy()
        assert x.shape == (8, 8, 3)
        found = any(
            np.allclose(x, image[i : i + 8, j : j + 8])
            for image in pixels
            for i in range(3)
            for j in range(5)
        )
        assert found


def test_workers_and_batches_change_nothing(tmp_path: Path) -> None:
    data = samples(tmp_path)
    alone = [x for x, _ in loader(data, start=4, stop=16, batch=4)]
    shared = [x for x, _ in loader(data, start=4, stop=16, batch=4, workers=1)]
    assert len(alone) == 3
    for a, b in zip(alone, shared, strict=True):
        assert torch.equal(a, b)
    assert torch.equal(alone[0][1], data[5][0])
    assert list(SampleNumbers(2, 9, 3)) == [[2, 3, 4], [5, 6, 7]]


def test_generators_of_different_purposes_differ() -> None:
    draws = {
        float(torch.rand((), generator=generator_of(seed, stream, n)))
        for seed in (0, 1)
        for stream in ("noise", "image")
        for n in (0, 1)
    }
    assert len(draws) == 8


def test_bad_sources_are_named(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="not a folder"):
        Folder(tmp_path / "missing")
    with pytest.raises(ArgumentError, match="no image"):
        Folder(tmp_path)
    with pytest.raises(UnknownNameError, match="unknown source 'foldr'; did you mean 'folder'"):
        SourceConfig("foldr", "x").open(tmp_path)
    with pytest.raises(ArgumentError, match="cannot be opened"):
        SourceConfig("folder", ".", options={"colour": 1}).open(tmp_path)
    (tmp_path / "broken.png").write_text("not a picture")
    with pytest.raises(ArgumentError, match=r"broken\.png is not an image"):
        Folder(tmp_path).image(0, torch.Generator())
    np.savez(tmp_path / "a.npz", images=np.zeros((2, 4, 4), np.uint8))
    with pytest.raises(ArgumentError, match="has no array 'subject'"):
        Npz(tmp_path / "a.npz", exclude={"subject": [1]})
    small = Samples([(Npz(tmp_path / "a.npz"), 1)], seed=0, crop=8)
    with pytest.raises(ShapeError, match="too small for crop 8"):
        small[0]
