"""``pnpcm mri``: from raw k-space to a volume. ``pnpcm simulate-mri``: raw files to try it on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pnpcm.cli import shared
from pnpcm.errors import ArgumentError

if TYPE_CHECKING:
    from torch import Tensor

FORMATS = "h5,nifti,png,html"


def mri(
    inputs: Annotated[
        list[Path], typer.Argument(help="Raw scans: fastMRI or ISMRMRD .h5, .cfl, .npz, .mat.")
    ],
    mask: Annotated[
        str | None,
        typer.Option(help="Undersample a full scan: gaussian1d, uniform1d … or a .npy file."),
    ] = None,
    acceleration: Annotated[float, typer.Option(help="Of that mask.")] = 4.0,
    acs: Annotated[
        int | None, typer.Option(help="Calibration lines; default: the paper's share, 12 or more.")
    ] = None,
    center_fraction: Annotated[
        float | None, typer.Option(help="Calibration lines in fastMRI's spelling, e.g. 0.08.")
    ] = None,
    maps: Annotated[Path | None, typer.Option(help="Your own coil maps, .npy or .npz.")] = None,
    maps_from: Annotated[
        str, typer.Option(help="sampled, or scan: calibrate on the full scan, as the paper does.")
    ] = "sampled",
    calibration: Annotated[int, typer.Option(help="ESPIRiT: width of the centre.")] = 24,
    kernel: Annotated[
        int | None, typer.Option(help="ESPIRiT: width of the kernels; default: by the lines.")
    ] = None,
    threshold: Annotated[float, typer.Option(help="ESPIRiT: smallest singular value.")] = 0.02,
    crop: Annotated[
        float | None, typer.Option(help="ESPIRiT: smallest eigenvalue; default: by the lines.")
    ] = None,
    map_sets: Annotated[
        int | None, typer.Option(help="Sets of coil maps; default: 1, or 2 where the object folds.")
    ] = None,
    coils: Annotated[int | None, typer.Option(help="Compress to so many coils.")] = None,
    scale: Annotated[str, typer.Option(help="cg, zero-filled or oracle (the paper's).")] = "cg",
    crop_first: Annotated[
        str | None, typer.Option(help="HEIGHT,WIDTH: crop, then undersample, as the paper does.")
    ] = None,
    whiten: Annotated[bool, typer.Option(help="Use the noise measurement of the file.")] = True,
    contrast: Annotated[int | None, typer.Option(help="Which one, where there are more.")] = None,
    repetition: Annotated[int | None, typer.Option(help="Which one.")] = None,
    set_index: Annotated[int | None, typer.Option("--set-index", help="Which set.")] = None,
    slices: Annotated[str | None, typer.Option(help="Some slices only: 3, 3:10, 3:10:2.")] = None,
    prior: Annotated[str, typer.Option(help="mri, a file, a folder, a Hub id.")] = "mri",
    method: shared.Method = None,
    aim: shared.Aim = "fidelity",
    sigma_y: Annotated[str, typer.Option(help="Noise in the prior's units, or auto.")] = "auto",
    steps: shared.Steps = None,
    preset: shared.PresetName = None,
    set_: shared.Set = None,
    samples: shared.Samples = 1,
    batch: Annotated[int, typer.Option(help="Slices solved at once: bounds memory.")] = 4,
    seed: shared.Seed = 0,
    device: shared.Device = "cpu",
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = Path("out/mri"),
    format: Annotated[str, typer.Option(help="Some of h5,nifti,dicom,npy,png,html.")] = FORMATS,
    json_: shared.Json = False,
    dry_run: shared.DryRun = False,
) -> None:
    """Reconstruct raw MRI scans: coil maps, scale, mask and parameters are found.

    A scan that is already undersampled is reconstructed as it is; a full one is undersampled with
    --mask and scored against itself, by the paper's convention and by fastMRI's. A second run
    keeps what is finished. Exit code 0: all done, 1: some failed, 2: bad input.
    """
    from pnpcm.mri.masks import MaskChoice
    from pnpcm.mri.preparation import SliceOptions
    from pnpcm.mri.writers import check_formats
    from pnpcm.recon.batch import process
    from pnpcm.recon.plan import Priors
    from pnpcm.recon.scan import ScanJob, scan_targets

    formats = check_formats([f.strip() for f in format.split(",") if f.strip()])
    drawn = None
    if mask is not None:
        drawn = MaskChoice(mask, acceleration, acs, center_fraction, seed)
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
    options = shared.options(
        sigma_y,
        set_,
        prior=prior,
        method=method,
        aim=aim,
        steps=steps,
        preset=preset,
        samples=samples,
        batch=batch,
        seed=seed,
        device=device,
    )
    reading = {"contrast": contrast, "repetition": repetition, "set": set_index}
    with shared.slices_bar(disable=json_) as progress:
        job = ScanJob(
            options=options,
            priors=Priors(prior, device),
            how=how,
            mask=drawn,
            slices=slices,
            formats=tuple(formats),
            reading=reading,
            progress=progress,
        )
        if dry_run:
            for path in inputs:
                print(json.dumps(job.plan(path), indent=2))
            return
        outcomes = process(inputs, scan_targets(inputs, out), job.choices(), job)
        shared.show(outcomes, len(inputs), mri, as_json=json_)


def _maps(path: Path) -> Tensor:
    import numpy as np
    import torch

    values = shared.read_array("maps", path)
    if values.ndim not in (3, 4, 5) or values.dtype.kind != "c":
        raise ArgumentError(
            f"maps {path} has shape {values.shape} and dtype {values.dtype}, expected complex "
            "(coils, H, W), (slices, coils, H, W) or (slices, sets, coils, H, W)"
        )
    return torch.from_numpy(values.astype(np.complex64))


def _sides(name: str, text: str) -> tuple[int, int]:
    try:
        height, width = (int(part) for part in text.split(","))
    except ValueError as error:
        raise ArgumentError(f"{name} is {text!r}, expected two numbers: 320,320") from error
    return height, width


def simulate_mri(
    out: Annotated[Path, typer.Argument(help="The file to write, e.g. scan.h5.")],
    images: Annotated[
        Path | None, typer.Option(help="Magnitudes (slices, H, W), .npy; default: a phantom.")
    ] = None,
    slices: Annotated[int, typer.Option(help="Of the phantom.")] = 4,
    size: Annotated[str, typer.Option(help="HEIGHT,WIDTH of the phantom.")] = "128,128",
    coils: Annotated[int, typer.Option(help="Receiver coils.")] = 8,
    noise: Annotated[float, typer.Option(help="Per real and imaginary part; image ≤ 1.")] = 0.005,
    mask: Annotated[
        str | None, typer.Option(help="Undersample: gaussian1d, uniform1d, equidistant, .npy.")
    ] = None,
    acceleration: Annotated[float, typer.Option(help="Of that mask.")] = 4.0,
    acs: Annotated[
        int | None, typer.Option(help="Calibration lines; default as the paper.")
    ] = None,
    seed: shared.Seed = 0,
) -> None:
    """Write simulated raw data in fastMRI's layout: coil maps, phase, correlated noise, k-space."""
    import numpy as np
    import torch

    from pnpcm.mri.masks import MaskChoice
    from pnpcm.mri.simulated_file import phantoms, write_simulated

    if images is None:
        magnitude = phantoms(slices, _sides("size", size))
    else:
        values = shared.read_array("images", images)
        if values.ndim != 3 or values.dtype.kind not in "fiu" or values.min() < 0:
            raise ArgumentError(
                f"images {images} has shape {values.shape} and dtype {values.dtype}, expected "
                "numbers ≥ 0 of shape (slices, H, W)"
            )
        magnitude = torch.from_numpy(values.astype(np.float32))
    shape = (magnitude.shape[1], magnitude.shape[2])
    drawn = None if mask is None else MaskChoice(mask, acceleration, acs, seed=seed).draw(shape)
    if drawn is not None and drawn.ndim == 2:
        raise ArgumentError(f"mask {mask} is of points; fastMRI's files hold lines: gaussian1d …")
    write_simulated(out, magnitude, n_coils=coils, noise_std=noise, mask=drawn, seed=seed)
    print(f"written: {out}, {len(magnitude)} slices of {shape[0]}×{shape[1]}, {coils} coils")
