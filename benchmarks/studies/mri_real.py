"""Measured k-space, retrospectively undersampled: pnpcm, CG-SENSE, ℓ1-wavelet and TV.

    python benchmarks/studies/mri_real.py --out out/mri-real [--seeds 3] [--only wavelet]

Needs $PNPCM_DATA/mri_kspace (a fully sampled 8-coil T1 brain of 230×180, and the same at low
resolution, 128×128) and sigpy. Masks are gaussian1d, R = 4 and 8 with the default number of
calibration lines, from which alone the coil maps are estimated, drawn by ``--seeds`` seeds; scores
are the paper's convention (MVUE reference, full scan's support, PSNR/SSIM with data range 1), mean
over the masks. CG-SENSE (iterations), ℓ1-wavelet and TV (sigpy, 200 and 500 iterations, λ relative
to the largest value of the zero-filled image) get the setting that scores best on each mask, an
advantage that no user has; pnpcm has its defaults (PnP-CM, 8 evaluations), and PnP-ADMM its tuned
numbers (16). Writes table.md and pictures.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from rich.progress import track
from torch import Tensor

from images import markdown
from pnpcm import load_prior
from pnpcm.io.files import save_picture, to_picture, write_text
from pnpcm.linalg import cg, to_complex
from pnpcm.mri import gaussian1d
from pnpcm.mri.masks import calibration_lines
from pnpcm.mri.preparation import Preparation, SliceOptions, Slices
from pnpcm.mri.readers import read_scan
from pnpcm.mri.scores import Scores, paper_scores
from pnpcm.places import existing
from pnpcm.recon.scan import reconstruct

FILES = {"230×180": "brain_t1_8ch_230x180.npz", "128×128": "brain_t1_8ch_lowres_128x128.npz"}
CASES = [(size, acceleration) for size in FILES for acceleration in (4, 8)]
OWN = {"PnP-CM": {}, "PnP-ADMM": {"method": "pnp-admm"}}
ITERATIONS = (3, 5, 8, 12, 20, 30)
LAMBDAS = (3e-5, 1e-4, 3e-4, 1e-3, 3e-3)
Method = Callable[[Slices], Iterator[tuple[str, Tensor]]]


def zero_filled(part: Slices) -> Iterator[tuple[str, Tensor]]:
    yield "", to_complex(part.operator.A_adjoint(part.y))


def cg_sense(part: Slices) -> Iterator[tuple[str, Tensor]]:
    for n in ITERATIONS:
        right = part.operator.A_adjoint(part.y)
        yield f"{n} it.", to_complex(cg(part.operator.A_adjoint_A, right, max_iter=n))


def _sigpy(app: str, iterations: int) -> Method:
    def solve(part: Slices) -> Iterator[tuple[str, Tensor]]:
        from sigpy.mri import app as apps

        y, maps = part.y[0].numpy(), part.operator.coil_maps[0].numpy()
        weights = part.operator.mask[0].float().numpy()
        top = float(part.operator.A_adjoint(part.y).abs().max())
        for share in LAMBDAS:
            recon = getattr(apps, app)(
                y, maps, share * top, weights=weights, max_iter=iterations, show_pbar=False
            )
            yield f"λ {share:g}", torch.from_numpy(np.asarray(recon.run()))[None]

    return solve


METHODS: dict[str, Method] = {
    "zero-filled": zero_filled,
    "CG-SENSE, best": cg_sense,
    "ℓ1-wavelet, best": _sigpy("L1WaveletRecon", 200),
    "TV, best": _sigpy("TotalVariationRecon", 500),
}


def best(method: Method, part: Slices) -> tuple[Scores, str, Tensor]:
    """The result of the setting with the highest PSNR."""
    assert part.reference is not None
    assert part.full_support is not None
    found = []
    for setting, x in method(part):
        image = part.image(x)
        found.append((paper_scores(image, part.reference, part.full_support), setting, image))
    return max(found, key=lambda row: row[0].psnr)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("out/mri-real"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--prior", default="mri")
    parser.add_argument("--only", default="", help="part of the names of the other methods")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore")
    convention = load_prior(options.prior).info["scale"]  # type: ignore[attr-defined]
    methods = {name: solve for name, solve in METHODS.items() if options.only in name}
    lines: list[list[str]] = []
    rows: dict[str, list[tuple[Scores, str]]] = {}
    for size, acceleration in CASES:
        scan = read_scan(existing(f"$PNPCM_DATA/mri_kspace/{FILES[size]}"))
        acs = calibration_lines(scan.size[1], acceleration)
        name = f"{size}, R = {acceleration}, {acs} calibration lines"
        rows = {}
        strip = []
        for seed in track(range(options.seeds), name):
            g = torch.Generator().manual_seed(seed)
            mask = gaussian1d(scan.size[1], acceleration, acs, generator=g)
            chosen = SliceOptions(mask=mask, maps_from="sampled")
            part = Preparation(scan, chosen, convention)(scan.slices([0]), [0])
            assert part.reference is not None
            assert part.full_support is not None
            strip = [part.reference]
            for method, solve in methods.items():
                scores, setting, image = best(solve, part)
                rows.setdefault(method, []).append((scores, setting))
                strip.append(image * part.full_support)
            for method, choices in OWN.items():
                volume = reconstruct(scan, options.prior, preparation=chosen, **choices)
                scores = paper_scores(volume.image, part.reference, part.full_support)
                rows.setdefault(method, []).append((scores, volume.record["parameters_from"]))
                strip.append(volume.image)
        cells = []
        for each in rows.values():
            mean = [sum(getattr(s, key) for s, _ in each) / len(each) for key in ("psnr", "ssim")]
            cells.append(f"{mean[0]:.2f} / {mean[1]:.3f}")
        lines.append([name, *cells])
        print(*lines[-1], {k: [s for _, s in v] for k, v in rows.items()}, sep=" | ", flush=True)
        _picture(options.out / f"{name.replace(' ', '')}.png", strip)
    table = markdown(["", *rows], lines)
    write_text(options.out / "table.md", table)
    print(table)


def _picture(path: Path, images: list[Tensor]) -> None:
    """Images in one row, differences to the first (×5) below."""
    first = images[0].abs()
    top = float(first.max())
    upper = torch.cat([x.abs()[0] / top for x in images], -1)
    lower = torch.cat([5 * (x.abs() - first).abs()[0] / top for x in images], -1)
    both = torch.cat([upper, lower]).clamp(0, 1)
    save_picture(path, to_picture(both[None] * 2 - 1))


if __name__ == "__main__":
    main()
