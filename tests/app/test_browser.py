"""The page in Chromium: upload and restore, brush, stop, refusals, two users at once."""

import io
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pnpcm.mri import phantoms, write_simulated

playwright = pytest.importorskip(
    "playwright.sync_api", reason="browser tests need playwright: pip install playwright"
)
CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="browser tests need Chromium: apt-get install chromium"
)
WAIT = 120_000
"""Longest time in ms that a step may take on a busy machine."""


@pytest.fixture(scope="module")
def browser(address: str) -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


class User:
    """A browser window with the page open; ``hosts``: all hosts that it has called."""

    def __init__(self, browser: Any, address: str, width: int = 1280) -> None:
        self.context = browser.new_context(viewport={"width": width, "height": 900})
        self.page = self.context.new_page()
        self.page.set_default_timeout(WAIT)
        self.hosts: set[str] = set()
        self.page.on("request", lambda request: self._called(request.url))
        self.page.goto(address)
        self.page.wait_for_selector("#run")

    def _called(self, url: str) -> None:
        if not url.startswith(("data:", "blob:")):
            self.hosts.add(url.split("/")[2])

    def choose(self, label: str, option: str) -> None:
        self.page.get_by_label(label, exact=True).click()
        self.page.get_by_role("option", name=option, exact=True).last.click()

    def upload(self, content: bytes, name: str = "photo.png") -> None:
        file = {"name": name, "mimeType": "image/png", "buffer": content}
        self.page.locator("#image input[type=file]").set_input_files([file])

    def clear(self) -> None:
        """Remove the upload."""
        self.page.get_by_label("Remove this file").or_(
            self.page.locator("#image button[aria-label='Clear']")
        ).first.click()

    def about(self, text: str) -> None:
        """Wait for the sentence about the upload."""
        self.page.locator("#about", has_text=text).wait_for()

    def status(self, text: str) -> None:
        """Wait for the status of the run."""
        self.page.locator("#status .card", has_text=text).wait_for()

    def save(self, button: str) -> bytes:
        with self.page.expect_download() as waiting:
            self.page.get_by_role("button", name=button).first.click()
        return Path(waiting.value.path()).read_bytes()


@pytest.fixture
def user(browser: Any, address: str) -> Iterator[User]:
    found = User(browser, address)
    yield found
    assert found.hosts == {address.removeprefix("http://")}
    found.context.close()


def png(colour: tuple[int, int, int], size: tuple[int, int] = (32, 24)) -> bytes:
    content = io.BytesIO()
    Image.new("RGB", size, colour).save(content, "PNG")
    return content.getvalue()


def test_an_upload_is_restored_shown_and_saved(user: User) -> None:
    user.upload(png((200, 80, 40)))
    user.about("32×24 pixels, colour, 8 bits")
    user.choose("What to do", "Enlarge")
    user.choose("Method", "wiener")
    user.page.click("#run")
    user.status("Done.")
    result = user.page.locator("#result-1")
    result.locator("img").first.wait_for()  # visible
    assert "Data: " in result.locator(".verdict .card").first.inner_text()
    with Image.open(io.BytesIO(user.save("Save result"))) as picture:
        assert picture.size == (128, 96)
        assert np.abs(np.asarray(picture, float) - (200, 80, 40)).max() <= 3
    record = json.loads(user.save("Save record"))
    assert (record["input"], record["method"], record["task"]) == (
        "photo.png",
        "wiener",
        "superres",
    )
    user.page.get_by_role("tab", name="Code").first.click()
    command = "pnpcm restore photo.png --task superres --factor 4 --method wiener"
    user.page.get_by_text(command).first.wait_for()
    assert not user.page.locator("#result-2").is_visible()


def test_the_brush_marks_what_is_filled(user: User) -> None:
    user.upload(png((30, 90, 160), (64, 64)))
    user.about("64×64 pixels")
    user.choose("What to do", "Fill marked areas")
    canvas = user.page.locator("#editor canvas").first
    canvas.wait_for()
    user.page.wait_for_timeout(5000)  # the canvas is laid out for the image, what is below moves
    user.choose("Method", "tv")
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    middle, height = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    user.page.mouse.move(middle - 40, height)
    user.page.mouse.down()
    user.page.mouse.move(middle + 40, height, steps=8)
    user.page.mouse.up()
    user.page.click("#run")
    user.status("Done.")
    with Image.open(io.BytesIO(user.save("Save mask"))) as mask:
        marked = np.asarray(mask) == 255
    assert mask.size == (64, 64)
    assert 0.001 < marked.mean() < 0.5
    rows, columns = np.nonzero(marked)
    assert abs(rows.mean() - 31.5) < 4  # the stroke is horizontal, through the middle
    assert np.ptp(columns) > 2 * np.ptp(rows)


def test_a_scan_is_reconstructed(user: User, tmp_path: Path) -> None:
    pytest.importorskip("h5py", reason="the scan is an HDF5 file: pip install pnpcm[mri]")
    pytest.importorskip("nibabel", reason="the result is NIfTI: pip install pnpcm[mri]")
    write_simulated(tmp_path / "scan.h5", phantoms(3, (40, 40)), n_coils=4)
    user.upload((tmp_path / "scan.h5").read_bytes(), "scan.h5")
    user.about("fastMRI scan: 3 slices, 4 coils, k-space 40×40")
    user.choose("Method", "tv")
    user.page.click("#run")
    user.status("Done.")
    result = user.page.locator("#result-1")
    result.locator("img").first.wait_for()
    assert user.save("Save result")[:2] == b"\x1f\x8b"  # .nii.gz
    record = json.loads(user.save("Save record"))
    assert (record["method"], record["slices"]) == ("tv", [1])  # the middle one
    user.clear()
    user.upload(png((9, 9, 9)))  # an image changes the task back
    user.about("32×24 pixels")
    user.page.wait_for_function("document.querySelector('#task input').value == 'Remove noise'")


def test_stop_ends_a_long_run(user: User) -> None:
    user.upload(png((90, 90, 90), (32, 32)))
    user.about("32×32 pixels")
    user.choose("What to do", "Enlarge")
    user.choose("Method", "dps")
    user.page.click("#run")
    user.page.locator("#status .progress-level-inner", has_text="step").wait_for()
    user.page.click("#stop")
    user.status("Stopped.")
    assert not user.page.locator("#result-1").is_visible()
    user.choose("Method", "wiener")  # the next run starts
    user.page.click("#run")
    user.status("Done.")


def test_bad_and_large_files_and_no_file_are_refused_with_a_sentence(user: User) -> None:
    user.page.click("#run")
    user.status("There is no image; drop one into the field at the top.")
    user.upload(b"not a picture", "text.png")
    user.about("text.png is not a PNG, JPEG, TIFF or WebP file")
    user.page.click("#run")
    user.status("text.png is not a PNG, JPEG, TIFF or WebP file")
    user.clear()
    user.upload(png((1, 2, 3), (129, 128)), "large.png")
    user.about("large.png has 129×128 = 16512 pixels, more than the 16384 that --max-pixels allows")
    assert "Traceback" not in user.page.content()


def test_two_users_at_once_get_their_own_results(browser: Any, address: str) -> None:
    colours = ((200, 60, 60), (60, 60, 200))
    users = [User(browser, address) for _ in colours]
    for user, colour in zip(users, colours, strict=True):
        user.upload(png(colour))
        user.about("32×24 pixels")
        user.choose("What to do", "Enlarge")
        user.choose("Method", "wiener")
    for user in users:
        user.page.click("#run")
    for user, colour in zip(users, colours, strict=True):
        user.status("Done.")
        with Image.open(io.BytesIO(user.save("Save result"))) as picture:
            assert np.abs(np.asarray(picture, float).mean((0, 1)) - colour).max() < 3
        user.context.close()


def test_two_methods_are_side_by_side_and_one_below_the_other_on_a_phone(
    browser: Any, address: str
) -> None:
    user = User(browser, address)
    user.page.locator("#examples button").nth(3).click()
    user.about("64×64 pixels")
    user.choose("Method", "wiener")
    user.choose("Compare with", "wiener")
    user.page.get_by_label("number input for Factor").fill("2")
    user.page.click("#run")
    user.status("Done.")
    for width, beside in ((1280, True), (390, False)):
        user.page.set_viewport_size({"width": width, "height": 900})
        user.page.wait_for_timeout(300)
        first, second = (user.page.locator(f"#result-{n}").bounding_box() for n in (1, 2))
        assert (second["x"] >= first["x"] + first["width"]) == beside
        for tab in ("Steps", "Spread", "Details", "Code"):
            user.page.get_by_role("tab", name=tab).first.click()
            user.page.wait_for_timeout(300)
            assert user.page.evaluate("document.documentElement.scrollWidth") <= width, tab
    user.context.close()
