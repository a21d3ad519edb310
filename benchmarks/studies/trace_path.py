"""Files and functions of pnpcm that one `restore` and one `mri` call pass through.

    python benchmarks/studies/trace_path.py [--source OTHER/src] [--list]

Runs both commands on small inputs in this process with a profiler that records every Python
function of the package that is called. `--source` traces another version of the package (an
older commit). Also counts files, lines and modules with a single importer.
"""

from __future__ import annotations

import argparse
import ast
import os
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parents[2] / "src"

CALLS = {
    "restore": ["restore", "photo.png", "--task", "deblur", "--gaussian", "5,2"],
    "mri": ["mri", "scan.h5", "--mask", "gaussian1d", "--acceleration", "4"],
}


def trace(command: list[str], source: Path) -> Counter[str]:
    """Functions entered per file while ``pnpcm COMMAND`` runs; a first run does the imports."""
    from pnpcm.cli import main

    entered: set[tuple[str, str, int]] = set()

    def note(frame: object, event: str, _: object) -> None:
        code = frame.f_code  # type: ignore[attr-defined]
        if event == "call" and code.co_filename.startswith(str(source)):
            entered.add((code.co_filename, code.co_qualname, code.co_firstlineno))

    for folder, profiler in (("warm", None), ("out", note)):
        sys.argv = ["pnpcm", *command, "--out", folder]
        sys.setprofile(profiler)
        try:
            main()
        except SystemExit as stop:
            if stop.code:
                raise
        finally:
            sys.setprofile(None)
    called = [e for e in entered if not e[1].endswith(("<module>", "comp>", "<genexpr>"))]
    return Counter(str(Path(file).relative_to(source)) for file, _, _ in called)


def imports(source: Path) -> dict[str, set[str]]:
    """Module → modules that import it."""
    names = {_module(p, source): p for p in (source / "pnpcm").rglob("*.py")}
    importers: dict[str, set[str]] = defaultdict(set)
    for name, path in names.items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    inner = f"{node.module}.{alias.name}"
                    importers[inner if inner in names else node.module].add(name)
    return {n: importers[n] for n in names if n not in ("pnpcm", "pnpcm.__main__")}


def _module(path: Path, source: Path) -> str:
    return ".".join(path.relative_to(source).with_suffix("").parts).removesuffix(".__init__")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", type=Path, default=HERE)
    parser.add_argument("--list", action="store_true", help="print the files of each call")
    options = parser.parse_args()
    source = options.source.resolve()
    if os.environ.get("PYTHONPATH") != str(source):  # start again with the version to trace
        environment = os.environ | {"PYTHONPATH": str(source)}
        raise SystemExit(subprocess.call([sys.executable, *sys.argv], env=environment))
    import pnpcm

    assert Path(pnpcm.__file__).is_relative_to(source)
    photo = next((source / "pnpcm" / "data").glob("*.png"))
    shown: dict[str, Callable[[], None]] = {}
    both: set[str] | None = None
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        from PIL import Image

        Image.open(photo).crop((0, 0, 64, 64)).save("photo.png")
        simulate = [sys.executable, "-m", "pnpcm", "simulate-mri", "scan.h5"]
        subprocess.run([*simulate, "--slices", "1"], check=True, stdout=subprocess.DEVNULL)
        for name, command in CALLS.items():
            found = trace(command, source)
            both = set(found) if both is None else both & set(found)
            lines = [f"  {file}: {count}" for file, count in sorted(found.items())]
            total = f"{name}: {len(found)} files, {sum(found.values())} functions"
            shown[name] = lambda t=total, ls=lines: print("\n".join([t, *(ls * options.list)]))  # type: ignore[misc]
    for show in shown.values():
        show()
    print(f"shared by both: {len(both or ())} files")
    importers = imports(source)
    files = list((source / "pnpcm").rglob("*.py"))
    count = sum(len(p.read_text(encoding="utf-8").splitlines()) for p in files)
    single = sum(len(who) == 1 for who in importers.values())
    print(f"package: {len(files)} files, {count} lines, {single} modules with one importer")


if __name__ == "__main__":
    main()
