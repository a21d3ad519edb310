"""Work of the app: restorations one after the other, with limits and temporary files."""

from __future__ import annotations

import re
import shutil
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from secrets import token_hex
from threading import Event, Lock

from PIL import Image, ImageChops

from pnpcm.app.form import (
    KERNEL_NAME,
    MASK_NAME,
    MAX_FACTOR,
    MAX_KERNEL,
    SCAN_FORMATS,
    SCAN_SUFFIXES,
    TASK_LABELS,
    Form,
    is_scan,
)
from pnpcm.app.view import Iterates, View, scan_spread, shown, shown_slice, spread, verdict
from pnpcm.arguments import check_count
from pnpcm.errors import ArgumentError, PnPCMError
from pnpcm.io.files import Picture, save_picture
from pnpcm.io.photos import SUFFIXES, UNREADABLE, Photo, as_stored, read_photo
from pnpcm.io.pictures import NEED
from pnpcm.io.reading import Budget, reading
from pnpcm.io.staging import remove
from pnpcm.mri.readers import read_scan
from pnpcm.mri.scan import Scan
from pnpcm.mri.writers import check_formats
from pnpcm.names import count_of
from pnpcm.problems.measurement import SUFFIX, Measurement, preview, read_measurement
from pnpcm.recon.check import Check
from pnpcm.recon.inputs import Input, photo_targets
from pnpcm.recon.photo import PhotoJob
from pnpcm.recon.plan import Priors
from pnpcm.recon.record import Request, record_path
from pnpcm.recon.scan import ScanJob, volume_report

Tell = Callable[[str, float], None]
"""Told (what is done now, share that is done) during a restoration."""
MEGA = 1_000_000
MAX_KERNEL_BYTES = 2**20
MEASURED_BOUNDS = {
    "factor": MAX_FACTOR,
    "gaussian": MAX_KERNEL,
    "motion": MAX_KERNEL,
    "length": MAX_KERNEL,
    "oversampling": 8,
}
"""Largest values of the options in a measurement file; of a pair: of the first."""
KEPT = 50
"""Number of sessions whose results are kept; those of the oldest are deleted."""


class Stopped(PnPCMError):
    """The user has stopped the restoration."""


@dataclass(frozen=True)
class Limits:
    """Bounds of a request: pixels of an image and of its result, bytes of a file; of the queue."""

    max_pixels: int = 16 * MEGA
    max_bytes: int = 64 * MEGA
    queue: int = 20

    def __post_init__(self) -> None:
        check_count("max_pixels", self.max_pixels, 64)
        check_count("max_bytes", self.max_bytes, 1000)
        check_count("queue", self.queue, 1)


@dataclass(frozen=True)
class Upload:
    """Uploaded files; ``painted``: what is painted on the upright picture, see :func:`merged`."""

    image: Path
    mask: Path | None = None
    kernel: Path | None = None
    painted: Picture | None = None


class Work:
    """Restores one upload after the other.

    ``root``: private folder that contains the uploads and in which all files are written. Nothing
    outside of it is read, and no name that a client has sent becomes part of a path.
    """

    def __init__(self, root: Path, limits: Limits) -> None:
        self.root, self.limits = root.resolve(), limits
        self._busy = Lock()  # a network counts its calls for one run at a time
        self._priors: dict[str, Priors] = {}
        self._stops: dict[str, Event] = {}
        self._folders: dict[str, Path] = {}
        self._closed = False

    # one session of a browser --------------------------------------------------------------------
    def restore(
        self, session: str, form: Form, upload: Upload, tell: Tell = lambda text, share: None
    ) -> list[View]:
        """The views of the results, one per method. An earlier result of the session is deleted."""
        with self._busy:
            self.forget(session)
            stop = self._stops[session] = Event()
            if self._closed:
                raise Stopped("stopped: the app ends")
            folder = self._folders[session] = self._new_folder()
            try:
                with _plain_errors(folder, upload.image):
                    return self._views(form, upload, folder, stop, tell)
            except BaseException:
                self.forget(session)
                raise
            finally:
                self._stops.pop(session, None)

    def stop(self, session: str) -> bool:
        """Stop the restoration of a session before its next step; whether one is running."""
        event = self._stops.get(session)
        if event is not None:
            event.set()
        return event is not None

    def close(self) -> None:
        """Stop the restoration that is running; those that wait do not start."""
        self._closed = True
        for event in list(self._stops.values()):
            event.set()

    def forget(self, session: str) -> None:
        """Delete the files of a session."""
        folder = self._folders.pop(session, None)
        if folder is not None:
            remove(folder)

    def preview(self, image: Path) -> tuple[Picture | None, str]:
        """The uploaded image in the size of a screen, and a description of it.

        The picture is None for a measurement that is not an image. Files that :meth:`restore` does
        not take are refused.
        """
        folder = self._new_folder()
        try:
            with _plain_errors(folder, image):
                path = self._taken(image, folder / f"image{_suffix(image)}")
                if is_scan(path.name):
                    return None, _scan_words(self._scan(path))
                if path.suffix == SUFFIX:
                    measured = self._measured(path)
                    x = preview(measured)
                    text = f"measurement of {measured.task.name}, sigma_y = {measured.sigma_y:g}"
                    return (None if x is None else shown(x[None], None)), text
                photo = self._photo(path)
                height, width = photo.x.shape[-2:]
                kind = "grey" if photo.x.shape[1] == 1 else "colour"
                return shown(photo.x, photo), f"{width}×{height} pixels, {kind}, {photo.bits} bits"
        finally:
            remove(folder)

    def _views(
        self, form: Form, upload: Upload, folder: Path, stop: Event, tell: Tell
    ) -> list[View]:
        scan = is_scan(upload.image.name)
        if scan != (form.task == "mri"):
            what = "a raw scan" if scan else "not a raw scan"
            other = "choose" if scan else "do not choose"
            raise ArgumentError(f"{upload.image.name} is {what}: {other} “{TASK_LABELS['mri']}”")
        if scan:
            return self._scan_views(form, upload, folder, stop, tell)
        image, mask, kernel = self._files(form, upload, folder)
        views = []
        for i, method in enumerate(form.methods):
            run = _Run(form, method, folder, upload.image.name)
            job = PhotoJob(
                form.choice(image, mask, kernel),
                form.options(method),
                self._prior(form.prior, tell),
                max_pixels=self.limits.max_pixels,
                watch=_watch(stop, tell, i, len(form.methods)),
            )
            views.append(run.view(job, image, mask))
        return views

    def _scan_views(
        self, form: Form, upload: Upload, folder: Path, stop: Event, tell: Tell
    ) -> list[View]:
        check_formats(SCAN_FORMATS)
        path = self._taken(upload.image, folder / f"image{_suffix(upload.image)}")
        views = []
        for i, method in enumerate(form.methods):
            run = _Run(form, method, folder, upload.image.name)
            job = ScanJob(
                form.options(method),
                self._prior("mri", tell),
                mask=form.mask(),
                slices=str(form.slice),
                formats=SCAN_FORMATS,
                reading=form.reading(),
                max_pixels=self.limits.max_pixels,
                watch=_watch(stop, tell, i, len(form.methods)),
            )
            views.append(run.scan_view(job, path))
        return views

    def slices(self, path: Path) -> int | None:
        """The number of slices of an uploaded scan; None if it cannot be read."""
        try:
            return self._scan(path).n_slices
        except Exception:  # of any kind; reported by :meth:`preview`
            return None

    # files ---------------------------------------------------------------------------------------
    def _scan(self, path: Path) -> Scan:
        return read_scan(path, max_pixels=self.limits.max_pixels)

    def _new_folder(self) -> Path:
        while len(self._folders) >= KEPT:
            self.forget(next(iter(self._folders)))
        folder = self.root / "work" / token_hex(8)
        folder.mkdir(parents=True)
        return folder

    def _taken(self, source: Path, target: Path) -> Path:
        """A copy of an upload in the working folder; other files are refused."""
        if not (source.resolve().is_relative_to(self.root) and source.is_file()):
            raise ArgumentError("the file is not an upload of this page; upload it again")
        if source.stat().st_size > self.limits.max_bytes:
            raise ArgumentError(
                f"{source.name} has {source.stat().st_size / MEGA:.3g} MB; the limit is "
                f"{self.limits.max_bytes / MEGA:.3g} MB: raise it with pnpcm app --max-megabytes"
            )
        shutil.copyfile(source, target)
        return target

    def _files(
        self, form: Form, upload: Upload, folder: Path
    ) -> tuple[Path, Path | None, Path | None]:
        """Copies of image, mask and kernel that the task needs, checked against the limits."""
        image = self._taken(upload.image, folder / f"image{_suffix(upload.image)}")
        if image.suffix == SUFFIX:
            self._measured(image)
            return image, None, None
        photo = self._photo(image)
        self._check_result(photo.x.shape, form.enlargement)
        mask = kernel = None
        if form.task == "inpaint" and upload.mask is not None:
            mask = self._taken(upload.mask, folder / MASK_NAME)
            self._photo(mask)
        elif form.task == "inpaint" and upload.painted is not None:
            mask = folder / MASK_NAME
            save_picture(mask, painted_mask(upload.painted, photo))
        if form.task == "deblur" and form.blur == "kernel" and upload.kernel is not None:
            kernel = self._taken(upload.kernel, folder / KERNEL_NAME)
            if kernel.stat().st_size > MAX_KERNEL_BYTES:
                raise ArgumentError("the kernel file has more than 1 MB; give a smaller kernel")
        return image, mask, kernel

    def _photo(self, path: Path) -> Photo:
        return read_photo(path, max_pixels=self.limits.max_pixels)

    def _check_result(self, shape: Sequence[int], factor: int) -> None:
        """Refuse an image or a measurement whose result has too many pixels."""
        height, width = shape[-2:]
        budget = Budget(NEED, self.limits.max_pixels)
        budget.check("the result", (factor * width, factor * height))

    def _measured(self, path: Path) -> Measurement:
        """A measurement file; refused if it is much larger when it is read."""
        with reading(path, "a measurement file"), zipfile.ZipFile(path) as file:
            size = sum(member.file_size for member in file.infolist())
        if size > 8 * self.limits.max_bytes:
            raise ArgumentError(
                f"{path} contains {size / MEGA:.3g} MB; the limit is "
                f"{8 * self.limits.max_bytes / MEGA:.3g} MB"
            )
        return read_measurement(
            path,
            max_pixels=self.limits.max_pixels,
            accept=lambda measured: self._check_task(path, measured),
        )

    def _check_task(self, path: Path, measured: Measurement) -> None:
        """Refuse a task that names a file of this machine, or has numbers of a large problem."""
        if getattr(measured.task, "kernel_wizard", None) is not None:
            raise ArgumentError(
                f"{path} names a file of this machine (kernel_wizard), which the app does not "
                "open; use pnpcm restore"
            )
        for name, largest in MEASURED_BOUNDS.items():
            value = getattr(measured.task, name, None)
            value = value[0] if isinstance(value, tuple) else value
            if isinstance(value, int | float) and not 0 < value <= largest:
                raise ArgumentError(f"{path} has {name} = {value:g}; the limit is {largest:g}")
        self._check_result(measured.y.shape, getattr(measured.task, "factor", 1))

    def _prior(self, name: str, tell: Tell) -> Priors:
        """The loaded priors of a name, which stay in memory."""
        if name not in self._priors:
            self._priors[name] = Priors(name, loading=lambda n: tell(f"loading prior {n}", 0.0))
        return self._priors[name]


@dataclass(frozen=True)
class _Run:
    """The restoration with one method."""

    form: Form
    method: str
    folder: Path
    name: str

    def view(self, job: PhotoJob, image: Path, mask: Path | None) -> View:
        iterates = Iterates()
        solved = job.solve(image, iterates)
        done = solved.restoration
        (target,) = photo_targets([Input(image)], [solved.task.name], self.folder / self.method)
        target = target.with_name(f"{target.stem}.{done.plan.method}{target.suffix}")
        record = job.save(solved, target, self._request(job, image))
        files = [target.parent / name for name in record["files"]]
        window = solved.task.problem(solved.y).window
        return View(
            method=done.plan.method,
            before=shown(solved.before(), solved.photo),
            after=shown(done.x, solved.photo),
            spread=spread(solved),
            verdict=verdict(done.check),
            iterates=iterates.pictures(window, solved.photo),
            seconds=record["seconds"],
            report=done.report(),
            record=record,
            files=(
                *files[:1],
                record_path(target.parent, target.stem),
                *files[1:],
                *((mask,) if mask else ()),
            ),
            command=self.form.command(self.method, self.name),
            code=self.form.code(self.method, self.name),
        )

    def scan_view(self, job: ScanJob, path: Path) -> View:
        iterates = Iterates()
        solved = job.solve(path, Path(self.name).stem, iterates.of_scan)
        volume = solved.volume
        target = self.folder / self.method / f"image.{volume.record['method']}.scan"
        target.parent.mkdir()
        record = job.save(
            replace(solved, volume=replace(volume, name=target.stem)),
            target,
            self._request(job, path),
        )
        files = [target.parent / name for name in record["files"]]
        return View(
            method=volume.record["method"],
            before=shown_slice(solved.before()),
            after=shown_slice(volume),
            spread=scan_spread(volume),
            verdict=verdict(Check.from_dict(record["check"])),
            iterates=iterates.slices(volume),
            seconds=record["seconds"],
            report=volume_report(volume),
            record=record,
            files=(files[0], record_path(target.parent, target.stem), *files[1:]),
            command=self.form.command(self.method, self.name),
            code=self.form.code(self.method, self.name),
        )

    def _request(self, job: PhotoJob | ScanJob, image: Path) -> Request:
        """The request with the user's name of the file, and without folders of this machine."""
        request = Request.of(image, job.choices(image))
        plain = {
            key: value.replace(f"{self.folder}/", "") if isinstance(value, str) else value
            for key, value in request.choices.items()
        }
        return replace(request, input=Path(self.name), choices=plain)


def _watch(stop: Event, tell: Tell, run: int, runs: int) -> Callable[[str, float, int], None]:
    """The ``watch`` of a job: tells the progress of all runs, and raises :class:`Stopped`."""

    share = 0.0

    def watch(what: str, done: float, total: int) -> None:
        nonlocal share
        if stop.is_set():
            raise Stopped("stopped")
        text = what.split(", ")[-1]
        if total:
            text += f" {min(int(done) + 1, total)} of {total}"
            share = done / total
        if runs > 1:
            text = f"method {run + 1} of {runs}, {text}"
        tell(text, (run + share) / runs)

    return watch


def merged(layers: Sequence[Picture]) -> Picture | None:
    """White where a layer of the brush is not transparent; None if nothing is painted."""
    alphas = [layer.convert("RGBA").getchannel("A") for layer in layers]
    marks = [alpha.point(lambda value: 255 * (value > 0)) for alpha in alphas]
    found = reduce(ImageChops.lighter, marks) if marks else None
    return found if found is not None and found.getbbox() else None


def painted_mask(painted: Picture, photo: Photo) -> Picture:
    """The mask of a photo of what is painted on its upright picture, which has any size."""
    height, width = photo.x.shape[-2:]
    return as_stored(painted, photo).resize((width, height), Image.Resampling.NEAREST)


def _suffix(path: Path) -> str:
    """The suffix of an upload, if it is one of a fixed list; it is a hint at its format."""
    suffix = path.suffix.lower()
    return suffix if suffix in (*SUFFIXES, *UNREADABLE, SUFFIX, *SCAN_SUFFIXES) else ""


def _scan_words(scan: Scan) -> str:
    """A description of a scan."""
    height, width = scan.size
    sizes = f"{count_of(scan.n_slices, 'slice')}, {count_of(scan.n_coils, 'coil')}"
    return f"{scan.format} scan: {sizes}, k-space {height}×{width}"


@contextmanager
def _plain_errors(folder: Path, image: Path) -> Iterator[None]:
    """Errors in the words of the page: the user's name of the image, no folders, no options."""
    try:
        yield
    except Stopped:
        raise
    except MemoryError as error:
        raise ArgumentError("there is not enough memory; use a smaller image") from error
    except PnPCMError as error:
        text = str(error).replace(f"{folder}/image{_suffix(image)}", image.name)
        text = text.replace(f"{folder}/", "")
        text = text.replace("raise the limit with max_pixels=", "start the app with --max-pixels ")
        text = text.replace("max_pixels", "--max-pixels")
        raise ArgumentError(re.sub(r"--(?=(mask|kernel|task)\b)", "", text)) from error
