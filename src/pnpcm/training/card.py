"""Model cards: what a prior was made of, for people."""

from __future__ import annotations

from typing import Any

from pnpcm.training.recipe import Recipe


def model_card(info: dict[str, Any], recipe: Recipe) -> str:
    """Markdown for the folder of a run, from what the prior's own file says."""
    lines = [f"# {info['name']}", ""]
    for key, value in info.items():
        if key in ("name", "training"):
            continue
        text = ", ".join(str(v) for v in value) if isinstance(value, list | tuple) else str(value)
        lines.append(f"- **{key.replace('_', ' ')}**: {text}")
    lines += [
        "",
        "## Training",
        "",
        "| method | steps | samples | minutes | machine |",
        "|---|---|---|---|---|",
    ]
    for stage in info["training"]:
        cells = (stage.get(k, "–") for k in ("method", "steps", "samples", "minutes", "machine"))
        lines.append("| " + " | ".join(str(cell) for cell in cells) + " |")
    scores = info["training"][-1].get("psnr_by_sigma") or {}
    if scores:
        lines += ["", "## Denoising", "", "Validation crops, averaged weights.", ""]
        lines += ["| σ | " + " | ".join(scores) + " |", "|---" * (len(scores) + 1) + "|"]
        lines.append("| PSNR (dB) | " + " | ".join(f"{v:.2f}" for v in scores.values()) + " |")
    lines += ["", "## Recipe", "", f"`pnpcm train {recipe.method}`, network {recipe.network}", ""]
    return "\n".join(lines)
