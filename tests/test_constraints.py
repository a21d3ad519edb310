"""constraints.txt has a version of every package that our extras install, also indirectly."""

from __future__ import annotations

import tomllib
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    found = [line.split("#")[0].strip() for line in lines]
    pairs = [line.split("==") for line in found if line]
    return {canonicalize_name(name): version for name, version in pairs}


def required() -> set[str]:
    """Names of the installed packages that the extras need, and of those that these need."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lists = [project["dependencies"], *project["optional-dependencies"].values()]
    todo = [Requirement(text) for texts in lists for text in texts]
    seen: set[tuple[str, frozenset[str]]] = set()
    while todo:
        one = todo.pop()
        key = canonicalize_name(one.name), frozenset(one.extras)
        if key in seen or key[0] == "pnpcm":
            continue
        try:
            needs = metadata.requires(one.name) or []
        except metadata.PackageNotFoundError:  # an extra that is not installed
            continue
        seen.add(key)
        for need in map(Requirement, needs):
            cases = [{"extra": extra} for extra in ("", *one.extras)]
            if need.marker is None or any(need.marker.evaluate(case) for case in cases):
                todo.append(need)
    return {name for name, _ in seen}


def test_every_installed_package_of_our_extras_is_pinned() -> None:
    found = required()
    assert {"numpy", "mdurl", "markupsafe"} <= found  # the last two are indirect
    assert sorted(found - pins().keys()) == []


def test_pins_are_whole_versions() -> None:
    assert [v for v in pins().values() if not v[:1].isdigit() or "*" in v] == []
    assert pins()["torch"] == "2.13.0"
