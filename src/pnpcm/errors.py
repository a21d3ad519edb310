"""Exceptions of pnpcm. A message names the argument, the value, the expectation and a remedy.

All of them derive from :class:`PnPCMError` and from the corresponding built-in exception, so that
``except ValueError`` and ``except KeyError`` work as usual.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from difflib import get_close_matches

REMEDIES = {
    errno.ENOSPC: "free some space, or write to another disk",
    errno.EDQUOT: "your quota is used up: free some space, or write to another disk",
    errno.EROFS: "write to another folder",
    errno.EACCES: "change its permissions, or choose another path",
    errno.EPERM: "change its permissions, or choose another path",
    errno.EEXIST: "give another path, where folders can be created",
    errno.ENOTDIR: "a file is in the place of a folder; give another path",
    errno.EISDIR: "a folder is in the place of a file; give another path",
    errno.EFBIG: "the file is larger than the limit of the system (ulimit -f)",
    errno.EMFILE: "close other programs, or raise the limit of open files (ulimit -n)",
}
"""Remedy for an error of the system, by its number."""


class PnPCMError(Exception):
    """Base of all exceptions of pnpcm."""


class ArgumentError(PnPCMError, ValueError):
    """An argument has an invalid value."""


class ShapeError(ArgumentError):
    """A tensor does not have the shape that an operator, prior or metric needs."""


class OperatorError(PnPCMError, TypeError):
    """An operator lacks a property (adjoint, prox, differentiability) that is needed."""


class CheckpointError(PnPCMError, ValueError):
    """A file is not a readable checkpoint, or does not fit the network."""


class MissingExtraError(PnPCMError, ImportError):
    """A function needs an optional dependency; the message has the pip command."""


def in_words(error: Exception) -> str:
    """The message of an error; for an error of the system with the path and a remedy."""
    if not isinstance(error, OSError) or isinstance(error, PnPCMError):
        return str(error)
    path = "" if error.filename is None else f"{error.filename}: "
    number = error.errno or 0
    what = os.strerror(number) if number in REMEDIES else error.strerror or str(error)
    return f"{path}{' '.join(what.split())}; {REMEDIES.get(number, 'check the path and the disk')}"


class UnknownNameError(PnPCMError, KeyError):
    """A table has no such row; the message names the nearest or all rows."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        rows = sorted(known)
        close = get_close_matches(name, rows, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(rows) or 'none'}"
        super().__init__(f"unknown {kind} {name!r}; {hint}")

    def __str__(self) -> str:  # KeyError would print the repr of the message
        return str(self.args[0])
