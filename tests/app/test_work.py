"""Restorations of uploads: results and records, limits, stop, temporary files, refusals."""

import io
import json
import re
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw

from pnpcm.app import work as module
from pnpcm.app.form import Form
from pnpcm.app.work import Limits, Stopped, Upload, Work, merged, painted_mask
from pnpcm.errors import ArgumentError
from pnpcm.io.photos import read_photo, upright
from pnpcm.problems import Deblur, NonlinearDeblur, SuperRes
from pnpcm.problems.measurement import simulate, write_measurement

FAST = Form(task="superres", factor=2, method="wiener")


def test_a_result_has_pictures_files_and_a_record_without_folders(work: Work, photo: Path) -> None:
    (view,) = work.restore("s", FAST, Upload(photo))
    assert view.before.size == view.after.size == (48, 32)
    assert [path.name for path in view.files] == [
        "image.superres.wiener.png",
        "image.superres.wiener.result.json",
    ]
    record = json.loads(view.files[1].read_text(encoding="utf-8"))
    assert record == view.record
    assert (record["input"], record["task"], record["method"]) == (
        "my photo.png",
        "superres",
        "wiener",
    )
    assert str(work.root) not in view.files[1].read_text(encoding="utf-8")
    assert view.spread is None
    assert view.verdict.level in ("good", "care", "bad")
    assert set(view.seconds) >= {"read", "plan", "solve", "check"}


def test_samples_have_a_spread_and_steps_their_pictures(work: Work, photo: Path) -> None:
    form = Form(task="superres", factor=2, samples=2, steps=2)
    (view,) = work.restore("s", form, Upload(photo))
    assert view.spread is not None
    assert view.spread[0].size == (48, 32)
    assert view.spread[1].startswith("Standard deviation of 2 samples")
    assert [caption.split(":")[0] for _, caption in view.iterates] == ["1", "2"]
    assert [path.name.split(".", 3)[-1] for path in view.files[2:]] == [
        "sample.png",
        "std.npy",
        "std.png",
    ]


def test_two_methods_give_two_results_and_progress_that_grows(work: Work, photo: Path) -> None:
    told: list[tuple[str, float]] = []
    form = Form(task="superres", factor=2, method="wiener", second="tv")
    views = work.restore("s", form, Upload(photo), lambda text, share: told.append((text, share)))
    assert [view.method for view in views] == ["wiener", "tv"]
    assert not np.array_equal(np.asarray(views[0].after), np.asarray(views[1].after))
    shares = [share for _, share in told]
    assert shares == sorted(shares)
    assert 0 <= shares[0] <= shares[-1] <= 1
    assert told[-1][0] == "method 2 of 2, writing"
    assert all(path.is_file() for view in views for path in view.files)


def test_a_measurement_file_brings_its_task_and_noise(work: Work, photo: Path) -> None:
    measured = simulate(read_photo(photo).x, Deblur(gaussian=(5, 1.0)), 0.02)
    path = photo.with_name("y.npz")
    write_measurement(path, measured)
    picture, text = work.preview(path)
    assert picture is not None
    assert text == "measurement of deblur, sigma_y = 0.02"
    (view,) = work.restore("s", Form(task="superres", method="wiener"), Upload(path))
    assert (view.record["task"], view.record["sigma_y"]) == ("deblur", 0.02)
    assert view.command == "pnpcm restore y.npz --method wiener"


# scans -------------------------------------------------------------------------------------------
def test_a_scan_has_pictures_a_volume_and_a_record_without_folders(work: Work, scan: Path) -> None:
    nibabel = pytest.importorskip("nibabel", reason="the result of a scan is NIfTI")
    assert work.preview(scan) == (None, "npy scan: 2 slices, 2 coils, k-space 32×24")
    assert work.slices(scan) == 2
    form = Form(task="mri", slice=1, samples=2, second="tv")
    views = work.restore("s", form, Upload(scan))
    assert [view.method for view in views] == ["pnp-cm", "tv"]
    view = views[0]
    assert view.before.size == view.after.size
    assert view.before.height * 24 == view.before.width * 32
    assert nibabel.load(view.files[0]).shape == (32, 24, 1)
    assert view.spread is not None
    assert view.spread[0].size == view.after.size
    assert [caption.split(":")[0] for _, caption in view.iterates][:2] == ["1", "2"]
    text = view.files[1].read_text(encoding="utf-8")
    assert json.loads(text) == view.record
    assert (view.record["input"], view.record["slices"]) == ("my scan.npy", [1])
    assert str(work.root) not in text
    assert view.report.startswith("my scan: 1 slice of 32×24")


def test_scans_and_images_are_refused_for_the_task_of_the_other(
    work: Work, scan: Path, photo: Path
) -> None:
    with pytest.raises(ArgumentError, match=r"^my scan\.npy is a raw scan: choose “Reconstruct"):
        work.restore("s", Form(), Upload(scan))
    with pytest.raises(ArgumentError, match=r"^my photo\.png is not a raw scan: do not choose"):
        work.restore("s", Form(task="mri"), Upload(photo))


def test_scans_that_are_damaged_or_large_are_refused(work: Work, scan: Path) -> None:
    form = Form(task="mri")
    with pytest.raises(ArgumentError, match="slices holds 7"):
        work.restore("s", Form(task="mri", slice=7), Upload(scan))
    np.save(scan, np.ones((1, 8, 32, 32), np.complex64))  # 8192 samples of at most 4096
    with pytest.raises(ArgumentError, match="--max-pixels"):
        work.restore("s", form, Upload(scan))
    for name in ("my scan.npy", "a.h5", "a.dat", "a.mat"):
        path = scan.with_name(name)
        path.write_bytes(b"not a scan")
        assert work.slices(path) is None
        with pytest.raises(ArgumentError, match=re.escape(name)):
            work.preview(path)
        with pytest.raises(ArgumentError, match=re.escape(name)):
            work.restore("s", form, Upload(path))
    assert list((work.root / "work").iterdir()) == []


def test_stop_ends_a_reconstruction(work: Work, scan: Path) -> None:
    def tell(text: str, share: float) -> None:
        if text == "slice 1 of 1":
            assert work.stop("s")

    with pytest.raises(Stopped):
        work.restore("s", Form(task="mri", steps=4), Upload(scan), tell)
    assert list((work.root / "work").iterdir()) == []


# the brush ---------------------------------------------------------------------------------------
@pytest.mark.parametrize("orientation", range(1, 9))
def test_what_is_painted_on_the_upright_picture_is_marked_in_the_stored_one(
    orientation: int, tmp_path: Path
) -> None:
    stored = np.zeros((16, 24), np.uint8)
    stored[2:5, 12:20] = 255
    exif = Image.Exif()
    exif[0x112] = orientation
    Image.fromarray(stored).save(tmp_path / "a.png", exif=exif.tobytes())
    photo = read_photo(tmp_path / "a.png")
    picture = upright(Image.fromarray(stored), photo)
    layer = Image.new("RGBA", picture.size)
    layer.putalpha(picture.point(lambda value: value // 2))
    marks = merged([layer])
    assert marks is not None
    assert np.array_equal(np.asarray(painted_mask(marks, photo)), stored)


def test_layers_are_joined_and_enlarged_to_the_photo(photo: Path) -> None:
    layers = [Image.new("RGBA", (12, 8)) for _ in range(2)]
    layers[0].putpixel((0, 0), (9, 9, 9, 1))
    layers[1].putpixel((11, 7), (9, 9, 9, 255))
    expected = np.zeros((16, 24), np.uint8)
    expected[:2, :2] = expected[-2:, -2:] = 255
    marks = merged(layers)
    assert marks is not None
    assert np.array_equal(np.asarray(painted_mask(marks, read_photo(photo))), expected)
    assert merged([Image.new("RGBA", (4, 4), (255, 0, 0, 0))]) is None
    assert merged([]) is None


def test_a_mask_file_is_used_instead_of_the_brush(work: Work, photo: Path) -> None:
    mask = Image.new("L", (24, 16))
    ImageDraw.Draw(mask).rectangle((3, 3, 6, 6), fill=255)
    mask.save(photo.with_name("m.png"))
    marks = Image.new("L", (24, 16), 255)  # everything: refused if it were used
    form = Form(task="inpaint", method="tv")
    (view,) = work.restore("s", form, Upload(photo, photo.with_name("m.png"), None, marks))
    with Image.open(view.files[-1]) as used:
        assert np.array_equal(np.asarray(used), np.asarray(mask))
    outside = np.asarray(mask) == 0
    with Image.open(photo) as before, Image.open(view.files[0]) as after:
        assert np.array_equal(np.asarray(before)[outside], np.asarray(after)[outside])


# stop and temporary files ------------------------------------------------------------------------
def test_stop_ends_a_run_before_its_next_step_and_leaves_no_file(work: Work, photo: Path) -> None:
    seen: list[str] = []

    def tell(text: str, share: float) -> None:
        seen.append(text)
        if text == "step 2 of 4":
            assert work.stop("s")

    with pytest.raises(Stopped):
        work.restore("s", Form(task="superres", factor=2, steps=4), Upload(photo), tell)
    assert seen[-1] == "step 2 of 4"
    assert list((work.root / "work").iterdir()) == []
    assert not work.stop("s")
    assert work.restore("s", FAST, Upload(photo))  # the stop does not concern the next run


def test_when_the_app_ends_a_run_stops_and_none_starts(work: Work, photo: Path) -> None:
    def tell(text: str, share: float) -> None:
        if text == "step 1 of 4":
            work.close()

    for _ in range(2):
        with pytest.raises(Stopped):
            work.restore("s", Form(task="superres", factor=2, steps=4), Upload(photo), tell)
    assert list((work.root / "work").iterdir()) == []


def test_files_of_a_session_go_with_its_next_run_its_end_and_its_errors(
    work: Work, photo: Path
) -> None:
    first = work.restore("s", FAST, Upload(photo))[0].files[0]
    second = work.restore("s", FAST, Upload(photo))[0].files[0]
    other = work.restore("t", FAST, Upload(photo))[0].files[0]
    assert [path.exists() for path in (first, second, other)] == [False, True, True]
    work.forget("s")
    assert [path.exists() for path in (second, other)] == [False, True]
    with pytest.raises(ArgumentError):
        work.restore("t", Form(task="inpaint"), Upload(photo))
    assert list((work.root / "work").iterdir()) == []


def test_the_number_of_kept_results_is_bounded(
    work: Work, photo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "KEPT", 3)
    files = [work.restore(f"s{i}", FAST, Upload(photo))[0].files[0] for i in range(5)]
    assert [path.exists() for path in files] == [False, False, True, True, True]


def test_two_sessions_at_once_get_their_own_results(work: Work, photo: Path) -> None:
    """One is computed after the other: a network counts its calls for one run."""
    dark = photo.with_name("dark.png")
    Image.new("RGB", (24, 16), (20, 30, 40)).save(dark)
    found: dict[str, Any] = {}

    def run(name: str, path: Path) -> None:
        found[name] = work.restore(name, FAST, Upload(path))[0]

    threads = [threading.Thread(target=run, args=a) for a in (("s", photo), ("t", dark))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found["s"].record["input"] == "my photo.png"
    assert found["t"].record["input"] == "dark.png"
    assert np.asarray(found["t"].after).std((0, 1)).max() < 3
    assert np.asarray(found["s"].after).std((0, 1)).max() > 20


# refusals ----------------------------------------------------------------------------------------
def _png(path: Path, size: tuple[int, int]) -> Path:
    Image.new("L", size, 100).save(path)
    return path


def _text(path: Path) -> Path:
    path.write_text("not an image")
    return path


def _torn(path: Path) -> Path:
    content = io.BytesIO()
    Image.effect_noise((32, 32), 50).save(content, "PNG")
    path.write_bytes(content.getvalue()[:300])
    return path


def _gif(path: Path) -> Path:
    Image.new("L", (8, 8)).save(path)
    return path


def _outside(path: Path) -> Path:
    path.symlink_to("/etc/hostname")
    return path


def _noise(path: Path) -> Path:
    path.write_bytes(np.random.default_rng(0).bytes(100_001))
    return path


BAD: dict[str, tuple[Callable[[Path], Path], str]] = {
    "large.png": (
        lambda path: _png(path, (65, 64)),
        "large.png has 65×64 = 4160 pixels, more than the 4096 that --max-pixels allows; use a "
        "smaller file, or start the app with --max-pixels 4160",
    ),
    "text.png": (_text, "text.png is not a PNG, JPEG, TIFF or WebP file"),
    "torn.png": (_torn, "torn.png cannot be read as PNG ("),
    "a.gif": (_gif, "a.gif is a GIF file, which pnpcm does not read"),
    "link.png": (_outside, "the file is not an upload of this page"),
    "many.png": (_noise, "many.png has 0.1 MB; the limit is 0.1 MB"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_upload_is_refused_with_one_sentence_twice(
    name: str, work: Work, uploads: Path
) -> None:
    """When it is shown and, for requests that do not show it, when it is restored."""
    make, message = BAD[name]
    path = make(uploads / name)
    for call in (lambda: work.preview(path), lambda: work.restore("s", FAST, Upload(path))):
        with pytest.raises(ArgumentError, match=re.escape(message)) as error:
            call()
        assert str(work.root) not in str(error.value)
    assert list((work.root / "work").iterdir()) == []


def test_paths_of_a_request_are_not_opened(work: Work, photo: Path, tmp_path: Path) -> None:
    outside = tmp_path / "secret.png"
    outside.write_bytes(photo.read_bytes())
    form = Form(task="inpaint", method="tv")
    for upload in (
        Upload(outside),
        Upload(photo.parent / ".." / ".." / "secret.png"),
        Upload(photo, mask=outside),
        Upload(photo.parent / "missing.png"),
    ):
        with pytest.raises(ArgumentError, match="is not an upload of this page"):
            work.restore("s", form, upload)


def test_the_size_of_the_result_counts(work: Work, photo: Path) -> None:
    form = Form(task="superres", factor=4, method="wiener")  # 96×64 of at most 4096
    with pytest.raises(ArgumentError, match=r"^the result has 96×64 = 6144 pixels"):
        work.restore("s", form, Upload(photo))


def test_masks_and_kernels_are_limited_too(work: Work, photo: Path, uploads: Path) -> None:
    mask = _png(uploads / "m.png", (100, 64))
    with pytest.raises(ArgumentError, match=r"^mask\.png has 100×64 = 6400 pixels"):
        work.restore("s", Form(task="inpaint", method="tv"), Upload(photo, mask))
    kernel = uploads / "k.npy"
    np.save(kernel, np.ones((3, 3, 3)))
    with pytest.raises(ArgumentError, match=r"^kernel kernel.npy has shape \(3, 3, 3\)"):
        work.restore("s", Form(task="deblur", blur="kernel"), Upload(photo, None, kernel))
    head = (
        b"\x93NUMPY\x01\x00v\x00{'descr': '<f8', 'fortran_order': False, 'shape': (99999, 99999)}"
    )
    kernel.write_bytes(head.ljust(127) + b"\n")  # 80 GB by its header
    with pytest.raises(
        ArgumentError, match=r"^kernel\.npy cannot be read as the \.npy file of kernel"
    ):
        work.restore("s", Form(task="deblur", blur="kernel"), Upload(photo, None, kernel))


def test_a_measurement_that_names_a_file_or_is_huge_is_refused(
    work: Work, photo: Path, tmp_path: Path
) -> None:
    x, path = read_photo(photo).x, photo.with_name("y.npz")
    secret = tmp_path / "weights.pth"
    measured = simulate(x, SuperRes(factor=2), 0.0)
    cases = (
        (NonlinearDeblur(kernel_wizard=str(secret)), "names a file of this machine"),
        (NonlinearDeblur(length=1e3), "y.npz has length = 1000; the limit is 99"),
        (Deblur(gaussian=(101, 1.0)), "y.npz has gaussian = 101; the limit is 99"),
        (SuperRes(factor=8), "the result has 96×64 = 6144 pixels"),
    )
    for task, message in cases:
        write_measurement(path, type(measured)(measured.y, task, 0.0))
        with pytest.raises(ArgumentError, match=re.escape(message)):
            work.restore("s", Form(), Upload(path))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("y.npy", bytes(900_000))
    with pytest.raises(ArgumentError, match=r"y\.npz contains 0\.9 MB; the limit is 0\.8 MB"):
        work.restore("s", Form(), Upload(path))


def test_memory_that_is_missing_is_one_sentence(
    work: Work, photo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr(module, "read_photo", fail)
    with pytest.raises(ArgumentError, match="not enough memory"):
        work.restore("s", FAST, Upload(photo))


def test_limits_are_positive() -> None:
    with pytest.raises(ArgumentError, match="max_pixels must be a whole number, at least 64"):
        Limits(max_pixels=0)
    with pytest.raises(ArgumentError, match="queue must be a whole number, at least 1"):
        Limits(queue=0)


def test_the_global_random_state_is_not_touched(work: Work, photo: Path) -> None:
    before = torch.random.get_rng_state()
    work.restore("s", FAST, Upload(photo))
    assert torch.equal(torch.random.get_rng_state(), before)


def test_an_unexpected_error_leaves_no_files(
    work: Work, photo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError("not an error of pnpcm")

    monkeypatch.setattr(module.PhotoJob, "solve", fails)
    with pytest.raises(RuntimeError, match="not an error of pnpcm"):
        work.restore("s", FAST, Upload(photo))
    assert list((work.root / "work").iterdir()) == []
