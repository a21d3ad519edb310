"""The few exceptions we raise. A message names the argument, the value, the expectation, the move.

All of them derive from :class:`PnPCMError`, and each also from the built-in exception that a
caller would expect, so ``except ValueError`` and ``except KeyError`` work as usual.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class PnPCMError(Exception):
    """Base of everything that pnpcm raises on purpose."""


class ArgumentError(PnPCMError, ValueError):
    """An argument has a value outside of what the function is defined for."""


class ShapeError(ArgumentError):
    """A tensor does not have the shape that an operator, prior or metric works on."""


class OperatorError(PnPCMError, TypeError):
    """An operator lacks something (adjoint, prox, differentiability) that was asked of it."""


class CheckpointError(PnPCMError, ValueError):
    """A file is not a checkpoint we can read, or does not fit the network."""


class MissingExtraError(PnPCMError, ImportError):
    """A function needs an optional dependency; the message holds the pip line."""


class UnknownNameError(PnPCMError, KeyError):
    """A table has no such row; the message lists what is there."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        rows = sorted(known)
        close = get_close_matches(name, rows, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(rows) or 'none'}"
        super().__init__(f"unknown {kind} {name!r}; {hint}")

    def __str__(self) -> str:  # KeyError would print the repr of the message
        return str(self.args[0])
