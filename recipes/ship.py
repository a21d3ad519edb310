"""Put trained priors of one domain into the package, with one model card.

    python recipes/ship.py natural [--evaluation out/natural]

Takes prior.safetensors of the runs that the last of recipes/<domain>-edm*.yaml and
recipes/<domain>-cm.yaml name. `--evaluation`: folder of `pnpcm priors evaluate … --out`, whose
table goes into the card.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from pnpcm.files import write_atomically, write_text
from pnpcm.priors.checkpoint import load_own, read_header
from pnpcm.training.card import model_card
from pnpcm.training.recipe import read_recipe

RECIPES = Path(__file__).parent
WEIGHTS = RECIPES.parent / "src" / "pnpcm" / "weights"
LIMIT = 12_000_000


def ship(domain: str, evaluation: Path | None) -> None:
    WEIGHTS.mkdir(exist_ok=True)
    cards = []
    for part in ("edm", "cm"):
        found = sorted(RECIPES.glob(f"{domain}-{part}*.yaml"), key=lambda path: path.stem)
        if not found:
            continue
        recipe = read_recipe(found[-1])
        source = RECIPES / recipe.out / "prior.safetensors"
        load_own(source)  # raises if it is damaged
        if source.stat().st_size > LIMIT:
            raise SystemExit(f"{source} has {source.stat().st_size} bytes, more than {LIMIT}")
        target = WEIGHTS / f"{domain}-{part}.safetensors"
        write_atomically(target, lambda temporary, source=source: _copy(source, temporary))
        cards.append(model_card(read_header(target)["info"], recipe))
        print(f"{target}: {target.stat().st_size / 1e6:.1f} MB")
    if evaluation is not None:
        table = (evaluation / "evaluate.md").read_text(encoding="utf-8")
        cards.append(table)
    write_text(WEIGHTS / f"{domain}.md", "\n".join(cards))


def _copy(source: Path, target: Path) -> None:
    shutil.copyfile(source, target)
    target.chmod(0o644)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("domain")
    parser.add_argument("--evaluation", type=Path)
    options = parser.parse_args()
    ship(options.domain, options.evaluation)
