"""Check of ``info``, the free-form metadata in a prior's file, before anything is computed.

Of its entries, name, scale, training, domain and control are used; the others are only shown.
"""

from __future__ import annotations

import math
from typing import Any

from pnpcm.metrics.domain import Domain

NAME = 100
"""Most characters of a name and of an intensity convention."""
DOMAIN = ("mean", "precision", "limit")
PSNR = 200.0
"""Largest PSNR in dB, of either sign."""


def checked_info(info: Any) -> dict[str, Any]:
    """``info``; a ValueError for entries that could not be used after a reconstruction."""
    if not isinstance(info, dict):
        raise ValueError(f"info is a {type(info).__name__}, expected an object")
    for key in ("name", "scale"):
        text = info.get(key, "")
        if not isinstance(text, str | None) or len(text or "") > NAME or not _is_plain(text or ""):
            raise ValueError(f"info.{key} is not a line of up to {NAME} characters")
    if not isinstance(info.get("control", {}), dict):
        raise ValueError("info.control is not an object")
    stages = info.get("training", [])
    if not isinstance(stages, list) or not all(isinstance(stage, dict) for stage in stages):
        raise ValueError("info.training is not a list of objects")
    for stage in stages:
        table = stage.get("psnr_by_sigma") or {}
        if not isinstance(table, dict) or not all(_is_psnr(v) for v in table.values()):
            raise ValueError(f"info.training has a psnr_by_sigma without numbers up to {PSNR:g}")
    if "domain" in info:
        if not isinstance(info["domain"], dict) or not set(DOMAIN) <= set(info["domain"]):
            raise ValueError(f"info.domain is not an object of {', '.join(DOMAIN)}")
        Domain.from_dict(info["domain"])
    return info


def _is_plain(text: str) -> bool:
    return text == "" or text.isprintable()


def _is_psnr(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value) and abs(value) <= PSNR
