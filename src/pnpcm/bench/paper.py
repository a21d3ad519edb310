"""PUBLISHED: the numbers of the tables of the paper (Gülle et al., PnP-CM, CVPR 2026).

Photographs have PSNR (dB) and LPIPS (VGG), scans PSNR and SSIM. The noise level is 0.05 where the
table does not state another.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from pnpcm.baselines import LINEAR, NONLINEAR


@dataclass(frozen=True)
class Published:
    """One cell: ``second`` is LPIPS for photographs and SSIM for scans."""

    table: str
    data: str
    task: str
    method: str
    psnr: float
    second: float
    nfe: int | None = None
    sigma_y: float | None = 0.05

    @property
    def is_scan(self) -> bool:
        """Whether ``second`` is SSIM."""
        return self.data.startswith("fastmri")


def _row(
    table: str, data: str, tasks: tuple[str, ...], method: str, numbers: str, nfe: int
) -> list[Published]:
    """Cells of one line of a table; ``numbers``: PSNR/second per task, – for none."""
    found = []
    for task, text in zip(tasks, numbers.split(), strict=True):
        if text != "–":
            a, b = text.split("/")
            found.append(Published(table, data, task, method, float(a), float(b), nfe))
    return found


def _main() -> list[Published]:
    linear = {
        "DPS": (1000, "24.48/.253 25.36/.225 28.33/.194", "22.19/.335 22.88/.286 26.38/.231"),
        "DiffPIR": (100, "26.30/.271 27.32/.246 30.71/.207", "23.78/.334 24.60/.303 28.66/.212"),
        "DPnP": (2923, "26.21/.259 26.48/.252 28.33/.222", "23.79/.317 24.11/.303 27.10/.230"),
        "PnP-DM": (2034, "26.70/.230 26.99/.218 27.80/.195", "24.43/.270 24.66/.257 26.40/.209"),
        "CM": (40, "25.77/.431 26.81/.381 27.02/.344", "23.16/.425 24.86/.388 24.44/.410"),
        "CoSIGN": (4, "22.08/.594 22.87/.496 27.03/.367", "20.90/.545 23.08/.441 25.68/.339"),
        "CM4IR": (4, "26.77/.392 27.30/.297 28.21/.345", "25.50/.334 27.37/.270 26.78/.303"),
        "PnP-CM": (4, "27.27/.285 28.94/.249 29.23/.201", "25.56/.321 27.49/.285 27.12/.233"),
    }
    nonlinear = {
        "DPS": (1000, "25.55/.234 23.55/.253 21.38/.327", "20.23/.397 21.19/.324 18.06/.417"),
        "PiGDM": (100, "25.23/.221 24.13/.235 –", "23.34/.285 22.52/.290 –"),
        "DPnP": (2923, "21.31/.402 22.29/.333 22.89/.338", "20.24/.510 21.06/.391 18.55/.389"),
        "PnP-CM": (4, "26.14/.356 24.55/.304 22.18/.422", "23.49/.410 22.54/.381 18.98/.523"),
    }
    found = []
    for tasks, lines in ((LINEAR, linear), (NONLINEAR, nonlinear)):
        for method, (nfe, faces, bedrooms) in lines.items():
            found += _row("main", "celeba-hq", tasks, method, faces, nfe)
            found += _row("main", "lsun-bedroom", tasks, method, bedrooms, nfe)
    scans = {
        "DPS": (1000, "34.00/.893 31.88/.863", "31.68/.796 29.55/.758"),
        "DDS": (100, "34.39/.907 32.27/.868", "31.14/.792 29.18/.740"),
        "CM4IR": (4, "31.05/.796 29.60/.755", "26.51/.600 25.36/.556"),
        "PnP-CM": (4, "35.57/.915 33.24/.884", "32.90/.842 31.42/.804"),
    }
    for method, (nfe, pd, pdfs) in scans.items():
        found += _row("main", "fastmri-pd", ("r4", "r8"), method, pd, nfe)
        found += _row("main", "fastmri-pdfs", ("r4", "r8"), method, pdfs, nfe)
    return found


def _ablation() -> list[Published]:
    lines = {
        "no injection, no momentum": "22.93/.461 27.26/.427 28.69/.295",
        "injection, no momentum": "24.25/.300 28.89/.251 29.13/.204",
        "no injection, momentum": "25.97/.469 26.59/.453 28.72/.293",
        "injection, momentum": "27.27/.285 28.94/.249 29.23/.201",
    }
    return [
        c for m, text in lines.items() for c in _row("ablation", "celeba-hq", LINEAR, m, text, 4)
    ]


def _momentum() -> list[Published]:
    lines = {
        "no momentum": {4: "30.70/.845", 10: "32.81/.868", 20: "32.86/.873"},
        "momentum": {4: "32.81/.870", 10: "32.87/.872", 20: "32.81/.879"},
    }
    return [
        cell
        for method, counts in lines.items()
        for nfe, text in counts.items()
        for cell in _row("momentum", "fastmri-pd", ("r8",), method, text, nfe)
    ]


def _nfe_noise() -> list[Published]:
    lines = {
        (2, 0.025): "27.44/.272 29.22/.251 28.77/.213",
        (2, 0.05): "26.99/.281 28.78/.256 28.91/.209",
        (4, 0.025): "27.78/.265 29.57/.238 29.14/.206",
        (4, 0.05): "27.27/.285 28.94/.249 29.23/.201",
        (8, 0.025): "27.91/.264 29.71/.237 29.23/.205",
        (8, 0.05): "27.37/.286 29.05/.250 29.32/.199",
    }
    found = []
    for (nfe, level), text in lines.items():
        for c in _row("nfe-noise", "celeba-hq", LINEAR, "PnP-CM", text, nfe):
            found.append(replace(c, sigma_y=level))
    return found


PUBLISHED: tuple[Published, ...] = (*_main(), *_ablation(), *_momentum(), *_nfe_noise())
