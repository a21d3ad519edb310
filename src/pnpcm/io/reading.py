"""What every reader of files needs: conversion of errors, budget of memory, optional libraries.

Files may come from strangers. A reader checks declared sizes against the budget and the size of
the file before it allocates, and whatever a library raises about a damaged file becomes an error
of pnpcm in :func:`reading`.
"""

from __future__ import annotations

import errno
import importlib
import json
import math
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pnpcm.errors import REMEDIES, ArgumentError, MissingExtraError, PnPCMError

COMPLETE = "check that it is such a file and that it was copied completely"
LONGEST_TEXT = 2**26
"""Bytes of a text file (JSON, YAML, headers of BART) above which it is refused."""
SHARE = 0.75
"""Part of the machine's memory that one file may need."""
UNKNOWN = 8 * 2**30
"""Memory in bytes that is assumed where the system does not tell it (Windows)."""
CGROUP = Path("/sys/fs/cgroup/memory.max")


@contextmanager
def reading(
    path: str | Path,
    format: str,
    *,
    move: str = COMPLETE,
    error: type[PnPCMError] = ArgumentError,
) -> Iterator[None]:
    """Raise ``error`` in place of anything that a library raises about the content of ``path``.

    ``format``: what the file should be. ``move``: what the user can do if it is damaged. Errors of
    pnpcm pass.
    """
    check_regular(path, error)
    try:
        yield
    except PnPCMError:
        raise
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError) as cause:
        number = cause.errno or errno.ENOENT
        what, remedy = os.strerror(number), REMEDIES.get(number, "check the path")
        raise error(
            f"{cause.filename or path} cannot be read as {format}: {what}; {remedy}"
        ) from cause
    except MemoryError as cause:
        raise error(f"{path} needs more memory than there is; use a smaller file") from cause
    except Exception as cause:  # zlib, zip, struct, Unicode, recursion …: each library has its own
        reason = " ".join(f"{type(cause).__name__}: {cause}".split())[:160].rstrip(": ")
        raise error(f"{path} cannot be read as {format} ({reason}); {move}") from cause


def check_regular(path: str | Path, error: type[PnPCMError] = ArgumentError) -> None:
    """Refuse pipes, sockets and devices: reading them might never end."""
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):  # reported when the file is opened
        return
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise error(
            f"{path} is a pipe or a device, expected a file; write its content to a file first"
        )


def read_text(path: Path, most: int = LONGEST_TEXT) -> str:
    """The text of a file of at most ``most`` bytes, in UTF-8."""
    check_regular(path)
    size = path.stat().st_size
    if size > most:
        raise ArgumentError(
            f"{path} has {size} bytes, expected a text of at most {most}; give another file"
        )
    return path.read_text(encoding="utf-8")


def read_json(
    path: str | Path, format: str, *, move: str = COMPLETE, error: type[PnPCMError] = ArgumentError
) -> dict[str, Any]:
    """The object in a JSON file; see :func:`reading`."""
    with reading(path, format, move=move, error=error):
        values = json.loads(read_text(Path(path)))
        if not isinstance(values, dict):
            raise ValueError(f"a {type(values).__name__}, expected an object")
        return values


def library(name: str, purpose: str, extra: str = "mri") -> Any:
    """An optional library, imported on first use."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingExtraError(
            f"reading {purpose} needs {name.split('.')[0]}; run pip install 'pnpcm[{extra}]'"
        ) from error


def memory() -> int:
    """Bytes of memory that this process may use: of the machine, its container and its limits."""
    if not hasattr(os, "sysconf"):
        return UNKNOWN
    found = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    if CGROUP.is_file() and (text := CGROUP.read_text().strip()).isdigit():
        found.append(int(text))
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    if soft != resource.RLIM_INFINITY:
        found.append(soft)
    return min(found)


@dataclass(frozen=True)
class Budget:
    """The largest number of pixels of an image, or of samples of a scan, that is read or made.

    ``need``: bytes that the work on one pixel takes, from which the number follows by default.
    ``max_pixels``: the number itself, if the user gave one. ``move``: what the user can do.
    ``fixed``: whether the user cannot give the number.
    """

    need: int
    max_pixels: int | None = None
    move: str = "use a smaller file"
    fixed: bool = False

    def __post_init__(self) -> None:
        if self.max_pixels is not None and self.max_pixels < 1:
            raise ArgumentError(f"max_pixels must be a whole number ≥ 1, got {self.max_pixels}")

    @property
    def pixels(self) -> int:
        """The largest number of pixels."""
        return self.max_pixels or int(SHARE * memory()) // self.need

    def check(self, path: str | Path, sides: Sequence[int], what: str = "pixels") -> None:
        """Refuse ``path`` if it holds more than that many: the product of ``sides``."""
        count = math.prod(int(n) for n in sides)
        if count <= self.pixels:
            return
        why = "max_pixels" if self.max_pixels else f"the {memory() / 2**30:.3g} GiB of memory here"
        more = "" if self.fixed else f", or raise the limit with max_pixels={count}"
        raise ArgumentError(
            f"{path} has {'×'.join(map(str, sides))} = {count} {what}, more than the {self.pixels} "
            f"that {why} allows; {self.move}{more}"
        )
