"""Copy trained priors of one domain into the package, with one model card.

    python recipes/ship.py natural [--evaluation out/natural]
    python recipes/ship.py natural --describe

Copies prior.safetensors of the runs of the last recipes/<domain>-edm*.yaml and <domain>-cm*.yaml
that have one, and control.safetensors of those of recipes/<domain>-cosign-*.yaml. Weights without a
run stay; their card is that of the last recipe with their network. `--evaluation`: folder of
`pnpcm priors evaluate … --out`, whose table is added to the card. `--describe` copies nothing: it
stores the statistics of the training images, which the self-check uses, in files of earlier
versions of the training.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

import torch

from pnpcm.io.files import write_atomically, write_text
from pnpcm.places import existing, resolve
from pnpcm.priors.checkpoint import config_of, load_own, read_header, save_prior
from pnpcm.priors.controlled import load_control
from pnpcm.training.data import domain_of
from pnpcm.training.recipe import read_recipe
from pnpcm.training.report import model_card

RECIPES = Path(__file__).parent
WEIGHTS = RECIPES.parent / "src" / "pnpcm" / "weights"
LIMIT, CONTROL_LIMIT = 12_000_000, 8_000_000


def ship(domain: str, evaluation: Path | None) -> None:
    WEIGHTS.mkdir(exist_ok=True)
    cards = []
    for part in ("edm", "cm"):
        found = sorted(RECIPES.glob(f"{domain}-{part}*.yaml"), key=lambda path: path.stem)
        runs = [p for p in found if _prior_of(p).exists()]
        if runs:
            load_own(_prior_of(runs[-1]))  # or raises
            cards.append(_put(runs[-1], "prior", f"{domain}-{part}", LIMIT))
        elif found:
            header = read_header(WEIGHTS / f"{domain}-{part}.safetensors")
            network = config_of(header["network"])
            recipe = next(r for r in map(read_recipe, reversed(found)) if r.network == network)
            cards.append(model_card(header["info"], recipe))
    for path in sorted(RECIPES.glob(f"{domain}-cosign-*.yaml")):
        control = resolve(read_recipe(path).out, RECIPES) / "control.safetensors"
        if control.exists():
            load_control(control, load_own(WEIGHTS / f"{domain}-cm.safetensors"))  # or raises
            cards.append(_put(path, "control", path.stem, CONTROL_LIMIT))
    if evaluation is not None:
        table = (evaluation / "evaluate.md").read_text(encoding="utf-8")
        cards.append(table)
    write_text(WEIGHTS / f"{domain}.md", "\n".join(cards))


def _prior_of(path: Path) -> Path:
    """The weights of the run of a recipe."""
    return resolve(read_recipe(path).out, RECIPES) / "prior.safetensors"


def _put(path: Path, file: str, name: str, limit: int) -> str:
    """Copy what the run of a recipe left into the package; gives its card."""
    recipe = read_recipe(path)
    source = existing(f"{recipe.out}/{file}.safetensors", RECIPES)
    if source.stat().st_size > limit:
        raise SystemExit(f"{source} has {source.stat().st_size} bytes, more than {limit}")
    target = WEIGHTS / f"{name}.safetensors"
    write_atomically(target, lambda temporary: _copy(source, temporary))
    print(f"{target}: {target.stat().st_size / 1e6:.1f} MB")
    return model_card(read_header(target)["info"], recipe)


def _copy(source: Path, target: Path) -> None:
    shutil.copyfile(source, target)
    target.chmod(0o644)


def describe(domain: str) -> None:
    for part in ("edm", "cm"):
        path = sorted(RECIPES.glob(f"{domain}-{part}*.yaml"), key=lambda path: path.stem)[-1]
        found = domain_of(read_recipe(path).data.sources, RECIPES)
        if found is None:
            raise SystemExit(f"{path} has too few training images")
        target = WEIGHTS / f"{domain}-{part}.safetensors"
        prior = load_own(target)
        info = read_header(target)["info"] | {"domain": found.to_dict()}
        save_prior(prior, target, info=info, dtype=torch.float16)
        target.chmod(0o644)
        print(f"{target}: limit {found.limit}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("domain")
    parser.add_argument("--evaluation", type=Path)
    parser.add_argument("--describe", action="store_true")
    options = parser.parse_args()
    if options.describe:
        describe(options.domain)
    else:
        ship(options.domain, options.evaluation)
