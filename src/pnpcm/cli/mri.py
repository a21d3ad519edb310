"""``pnpcm mri``: from raw k-space to a volume. ``pnpcm simulate-mri``: raw files to try it on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pnpcm.cli import shared
from pnpcm.errors import ArgumentError, PnPCMError

if TYPE_CHECKING:
    from torch import Tensor

    from pnpcm.mri.preparation import SliceOptions
    from pnpcm.mri.scan import Scan
    from pnpcm.mri.writers import Volume

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
    sigma_y: Annotated[str, typer.Option(help="Noise in the prior's units, or auto.")] = "auto",
    steps: Annotated[int | None, typer.Option(help="Network evaluations.")] = None,
    preset: Annotated[str | None, typer.Option(help="Name or file of a preset.")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="Any hyperparameter, e.g. max_iter=20.")
    ] = None,
    samples: Annotated[int, typer.Option(help="Independent results: mean and spread.")] = 1,
    batch: Annotated[int, typer.Option(help="Slices solved at once: bounds memory.")] = 4,
    seed: shared.Seed = 0,
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = Path("out/mri"),
    format: Annotated[str, typer.Option(help="Some of h5,nifti,dicom,npy,png,html.")] = FORMATS,
    json_: Annotated[bool, typer.Option("--json", help="One JSON object per scan.")] = False,
    dry_run: Annotated[bool, typer.Option(help="Print the resolved configuration only.")] = False,
) -> None:
    """Reconstruct raw MRI scans: coil maps, scale, mask and parameters are found.

    A scan that is already undersampled is reconstructed as it is; a full one is undersampled with
    --mask and scored against itself, by the paper's convention and by fastMRI's. Exit code 0: all
    done, 1: some failed, 2: bad input.
    """
    from pnpcm.mri.preparation import SliceOptions
    from pnpcm.mri.readers import read_scan
    from pnpcm.mri.writers import check_formats
    from pnpcm.recon.scan_plan import plan_scan
    from pnpcm.recon.settings import parse_settings

    formats = check_formats([f.strip() for f in format.split(",") if f.strip()])
    crop_size = None if crop_first is None else _sides("crop_first", crop_first)
    common: dict[str, Any] = {
        "sigma_y": shared.noise(sigma_y),
        "steps": steps,
        "preset": preset,
        "settings": parse_settings(set_ or []),
        "samples": samples,
    }

    def options_for(scan: Scan) -> SliceOptions:
        size = crop_size or scan.size
        drawn = None
        if mask is not None:
            drawn = _mask(mask, size, acceleration, acs, center_fraction, seed)
        return SliceOptions(
            mask=drawn,
            coil_maps=None if maps is None else _maps(maps),
            maps_from=maps_from,
            calibration=calibration,
            kernel=kernel,
            threshold=threshold,
            crop=crop,
            map_sets=map_sets,
            n_coils=coils,
            scale=scale,
            crop_first=crop_size,
            whiten=whiten,
        )

    failed = 0
    for path in inputs:
        try:
            scan = read_scan(path, contrast=contrast, repetition=repetition, set=set_index)
            chosen = None if slices is None else _slices(slices, scan.n_slices)
            if dry_run:
                plan = plan_scan(scan, prior, options=options_for(scan), slices=chosen, **common)
                print(json.dumps(plan.to_dict() | {"notes": list(scan.notes)}, indent=2))
                continue
            common |= {"slices": chosen, "batch": batch, "seed": seed}
            volume = _reconstruct(scan, prior, options_for(scan), common)
            _finish(volume, out, formats, as_json=json_)
        except PnPCMError as error:
            if len(inputs) == 1:
                raise
            typer.echo(f"pnpcm: {path}: {error}", err=True)
            failed += 1
    if failed:
        raise typer.Exit(1)


def _reconstruct(scan: Scan, prior: str, options: SliceOptions, common: dict[str, Any]) -> Volume:
    from rich.console import Console
    from rich.progress import Progress

    from pnpcm.recon.scan import reconstruct

    console = Console(stderr=True)
    with Progress(console=console, disable=not console.is_terminal) as bar:
        count = scan.n_slices if common["slices"] is None else len(common["slices"])
        line = bar.add_task(f"{scan.name}, slices", total=count)
        return reconstruct(
            scan,
            prior,
            options=options,
            callback=lambda done: bar.update(line, completed=done),
            **common,
        )


def _finish(volume: Volume, out: Path, formats: list[str], *, as_json: bool) -> None:
    """Write the files, the record last, and tell."""
    from pnpcm.io.files import remove_leftovers, write_json
    from pnpcm.mri.writers import write_volume

    out.mkdir(parents=True, exist_ok=True)
    remove_leftovers(out)
    paths = write_volume(volume, out, formats)
    record = volume.record | {"files": [p.name for p in paths]}
    write_json(out / f"{volume.name}.result.json", record)
    if as_json:
        print(json.dumps(record, ensure_ascii=False), flush=True)
        return
    slices, height, width = volume.shape
    print(f"{volume.name}: {slices} slices of {height}×{width}, {record['sampling']}")
    print(f"parameters: {record['parameters_from']}; noise: sigma_y = {record['sigma_y']:.4g}")
    for score in record["scores"]:
        print(
            f"{score['convention']}: PSNR {score['psnr']:.2f} dB, SSIM {score['ssim']:.4f}, "
            f"NMSE {score['nmse']:.4f}"
        )
    print("seconds: " + ", ".join(f"{k} {v:.1f}" for k, v in record["seconds"].items()))
    for note in record["notes"]:
        print(f"note: {note}")
    print("written: " + ", ".join(str(p) for p in paths))


def _mask(
    name: str,
    size: tuple[int, int],
    acceleration: float,
    acs: int | None,
    center_fraction: float | None,
    seed: int,
) -> Tensor:
    import torch

    from pnpcm.mri.masks import MASKS, POINTS, calibration_lines, fastmri_lines, load_mask

    if name.endswith(".npy"):
        return load_mask(Path(name), size)
    if acs is not None and center_fraction is not None:
        raise ArgumentError("acs and center_fraction are two spellings of one thing; give one")
    if center_fraction is not None:
        acs = fastmri_lines(size[1], center_fraction)
    draw = MASKS[name]
    where = size if name in POINTS else size[1]
    acs = calibration_lines(where, acceleration) if acs is None else acs
    return draw(where, acceleration, acs, generator=torch.Generator().manual_seed(seed))


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


def _slices(text: str, count: int) -> list[int]:
    try:
        parts = [int(p) if p else None for p in text.split(":")]
    except ValueError as error:
        raise ArgumentError(f"slices is {text!r}, expected 3, 3:10 or 3:10:2") from error
    if len(parts) == 1 and parts[0] is not None:
        return [parts[0]]
    return list(range(count))[slice(*parts)]


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
    drawn = None if mask is None else _mask(mask, shape, acceleration, acs, None, seed)
    if drawn is not None and drawn.ndim == 2:
        raise ArgumentError(f"mask {mask} is of points; fastMRI's files hold lines: gaussian1d …")
    write_simulated(out, magnitude, n_coils=coils, noise_std=noise, mask=drawn, seed=seed)
    print(f"written: {out}, {len(magnitude)} slices of {shape[0]}×{shape[1]}, {coils} coils")
