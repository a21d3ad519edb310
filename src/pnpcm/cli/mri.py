"""``pnpcm mri`` (raw k-space to a volume) and ``pnpcm simulate-mri`` (simulated raw files)."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pnpcm.cli import shared
from pnpcm.cli.display import Display, count_inputs, say
from pnpcm.errors import ArgumentError
from pnpcm.names import count_of

if TYPE_CHECKING:
    from torch import Tensor

    from pnpcm.recon import Options

FORMATS = "h5,nifti,png,html"


@shared.takes(options=shared.options)
def mri(
    inputs: Annotated[
        list[Path],
        typer.Argument(
            help="Raw scans (fastMRI or ISMRMRD .h5, Siemens .dat, .cfl, .npy, .npz, .mat) or "
            "folders of them."
        ),
    ],
    *,
    mask: Annotated[
        str | None,
        typer.Option(help="Undersample a full scan with this mask: gaussian1d … or a .npy file."),
    ] = None,
    acceleration: Annotated[float, typer.Option(help="Acceleration factor R of --mask.")] = 4.0,
    acs: Annotated[
        int | None,
        typer.Option(
            help="Calibration lines of --mask; default: as in the paper, 12 or more where R allows."
        ),
    ] = None,
    center_fraction: Annotated[
        float | None, typer.Option(help="Share of lines for calibration, as in fastMRI: 0.08.")
    ] = None,
    maps: Annotated[
        Path | None, typer.Option(help="File of coil maps: .npy, .npz or .cfl.")
    ] = None,
    maps_from: Annotated[
        str,
        typer.Option(
            help="Calibration data of the coil maps: sampled, or scan (full scan, as in the paper)."
        ),
    ] = "sampled",
    calibration: Annotated[
        int, typer.Option(help="ESPIRiT: width of the calibration region in k-space samples.")
    ] = 24,
    kernel: Annotated[
        int | None,
        typer.Option(help="ESPIRiT: width of the kernels in k-space samples; default: fitted."),
    ] = None,
    threshold: Annotated[
        float, typer.Option(help="ESPIRiT: smallest singular value, relative to the largest.")
    ] = 0.02,
    crop: Annotated[
        float | None,
        typer.Option(help="ESPIRiT: smallest eigenvalue inside the support; default: fitted."),
    ] = None,
    map_sets: Annotated[
        int | None,
        typer.Option(help="Number of sets of coil maps; default: 1, or 2 where the object folds."),
    ] = None,
    coils: Annotated[
        int | None, typer.Option(help="Number of virtual coils after compression.")
    ] = None,
    scale: Annotated[
        str,
        typer.Option(help="Intensity scale from: cg, zero-filled or oracle (as in the paper)."),
    ] = "cg",
    crop_first: Annotated[
        str | None,
        typer.Option(help="HEIGHT,WIDTH: crop before undersampling, as in the paper."),
    ] = None,
    whiten: Annotated[
        bool, typer.Option(help="Prewhiten the coils with the noise measurement of the file.")
    ] = True,
    contrast: Annotated[
        int | None, typer.Option(help="Contrast index, if the file has several.")
    ] = None,
    repetition: Annotated[
        int | None, typer.Option(help="Repetition index, if the file has several.")
    ] = None,
    set_index: Annotated[
        int | None, typer.Option("--set-index", help="Set index, if the file has several.")
    ] = None,
    key: Annotated[
        str | None, typer.Option(help=".npz, .mat, .h5: name of the array of k-space.")
    ] = None,
    axes: Annotated[
        str | None,
        typer.Option(
            help="Arrays: axes of k-space in their order, e.g. row,col,coil or "
            "slice,coil,row,col; rows are along the readout, 1 is an axis of length 1."
        ),
    ] = None,
    slices: Annotated[
        str | None, typer.Option(help="Slices to reconstruct: 3, 3:10, 3:10:2; default: all.")
    ] = None,
    options: Options,
    batch: Annotated[
        int, typer.Option(help="Number of slices per batch; fewer need less memory.")
    ] = 4,
    out: Annotated[Path, typer.Option(help="Output folder.")] = Path("out/mri"),
    format: Annotated[
        str, typer.Option(help="Output formats, any of h5,nifti,dicom,npy,png,html.")
    ] = FORMATS,
    max_pixels: shared.MaxPixels = None,
    workers: shared.Workers = None,
    scheduler: shared.Scheduler = None,
    json_: shared.Json = False,
    dry_run: shared.DryRun = False,
) -> None:
    """Reconstruct raw MRI scans; coil maps, scale, mask and parameters are estimated.

    An undersampled scan is reconstructed from its own samples. A full scan is undersampled with
    --mask and scored against its own full data, in the paper's convention and in fastMRI's.
    Finished results are kept when the command is repeated. Several processes with the same output
    folder share the work. Exit code 0: all done, 1: some failed, 2: bad input, 130: Ctrl-C, 143:
    SIGTERM.
    """
    from pnpcm.mri.masks import MaskChoice
    from pnpcm.mri.preparation import SliceOptions
    from pnpcm.mri.writers import check_formats
    from pnpcm.recon.plan import Priors
    from pnpcm.recon.record import process
    from pnpcm.recon.scan import DEFAULT_PRIOR, ScanJob, find_scans, scan_targets

    formats = check_formats([f.strip() for f in format.split(",") if f.strip()])
    drawn = None
    if mask is not None:
        drawn = MaskChoice(mask, acceleration, acs, center_fraction, options.seed)
    how = SliceOptions(
        coil_maps=None if maps is None else _maps(maps),
        maps_from=maps_from,
        calibration=calibration,
        kernel=kernel,
        threshold=threshold,
        crop=crop,
        map_sets=map_sets,
        n_coils=coils,
        scale=scale,
        crop_first=None if crop_first is None else _sides("crop_first", crop_first),
        whiten=whiten,
    )
    options = replace(options, batch=batch)
    indices = {"contrast": contrast, "repetition": repetition, "set": set_index}
    files, empty = find_scans(inputs)
    with Display("mri", count_inputs(files, empty), as_json=json_) as display:
        job = ScanJob(
            options=options,
            priors=Priors(options.prior or DEFAULT_PRIOR, options.device, display.loading),
            how=how,
            mask=drawn,
            slices=slices,
            formats=tuple(formats),
            reading=indices | {"key": key, "axes": axes},
            max_pixels=max_pixels,
            watch=display,
        )
        if dry_run:
            spelled = partial(shared.in_its_spelling, command=mri)
            display.pass_over(empty)
            display.each(files, lambda path: json.dumps(job.plan(path), indent=2), spelled)
            return
        targets = scan_targets(files, out)
        with display.connected(workers, scheduler) as client:
            outcomes = chain(empty, process(files, targets, job, client))
            display.show(outcomes, partial(shared.in_its_spelling, command=mri))


def _maps(path: Path) -> Tensor:
    import numpy as np
    import torch

    if path.suffix in (".cfl", ".hdr"):
        from pnpcm.mri.readers.cfl import read_maps

        try:
            found = read_maps(path)  # (slices, sets, coils, H, W)
        except ArgumentError as error:
            raise ArgumentError(f"--maps {path} cannot be read: {error}") from error
        found = found[:, 0] if found.shape[1] == 1 else found
        return found[0] if len(found) == 1 and found.ndim == 4 else found
    values = shared.read_array("maps", path)
    if values.ndim not in (3, 4, 5) or values.dtype.kind != "c":
        raise ArgumentError(
            f"--maps {path} has shape {values.shape} and dtype {values.dtype}, expected complex "
            "(coils, H, W), (slices, coils, H, W) or (slices, sets, coils, H, W)"
        )
    return torch.from_numpy(values.astype(np.complex64))


def _sides(name: str, text: str) -> tuple[int, int]:
    try:
        height, width = (int(part) for part in text.split(","))
    except ValueError:
        height, width = 0, 0
    if min(height, width) < 1:
        raise ArgumentError(f"{name} is {text!r}, expected two positive numbers: 320,320")
    return height, width


def simulate_mri(
    out: Annotated[Path, typer.Argument(help="Output file, e.g. scan.h5.")],
    images: Annotated[
        Path | None,
        typer.Option(help=".npy file of magnitudes (slices, H, W); default: a phantom."),
    ] = None,
    slices: Annotated[int, typer.Option(help="Number of slices of the phantom.")] = 4,
    size: Annotated[str, typer.Option(help="HEIGHT,WIDTH of the phantom.")] = "128,128",
    coils: Annotated[int, typer.Option(help="Number of receiver coils.")] = 8,
    noise: Annotated[
        float, typer.Option(help="Noise std per real and imaginary part, for images in [0, 1].")
    ] = 0.005,
    mask: Annotated[
        str | None,
        typer.Option(
            help="Undersample with this mask: gaussian1d, uniform1d, equidistant or a .npy file."
        ),
    ] = None,
    acceleration: Annotated[float, typer.Option(help="Acceleration factor R of --mask.")] = 4.0,
    acs: Annotated[
        int | None,
        typer.Option(help="Number of calibration lines of --mask; default: as in the paper."),
    ] = None,
    seed: shared.Seed = 0,
) -> None:
    """Write simulated raw data in fastMRI's layout: coil maps, phase, correlated noise, k-space."""
    import numpy as np
    import torch

    from pnpcm.mri.masks import MaskChoice
    from pnpcm.mri.simulate import is_simulated, phantoms, write_simulated

    shared.check_output(out, is_simulated, "a scan of pnpcm simulate-mri")
    if images is None:
        magnitude = phantoms(slices, _sides("size", size))
    else:
        values = shared.read_array("images", images)
        if values.ndim != 3 or values.dtype.kind not in "fiu" or values.min() < 0:
            raise ArgumentError(
                f"--images {images} has shape {values.shape} and dtype {values.dtype}, expected "
                "numbers ≥ 0 of shape (slices, H, W)"
            )
        magnitude = torch.from_numpy(values.astype(np.float32))
    shape = (magnitude.shape[1], magnitude.shape[2])
    drawn = None if mask is None else MaskChoice(mask, acceleration, acs, seed=seed).draw(shape)
    if drawn is not None and drawn.ndim == 2:
        raise ArgumentError(
            f"--mask {mask} samples points, but fastMRI files store whole lines; use gaussian1d …"
        )
    write_simulated(out, magnitude, n_coils=coils, noise_std=noise, mask=drawn, seed=seed)
    number = f"{count_of(len(magnitude), 'slice')} of {shape[0]}×{shape[1]}"
    say(f"written: {out}, {number}, {count_of(coils, 'coil')}")
