"""One test over all rows of a table: every bad row is named in the message."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

import pytest

T = TypeVar("T")


def check_rows(rows: Iterable[tuple[str, T]], check: Callable[[T], None]) -> None:
    """Run ``check`` on every ``(name, row)``; fail with the names and reasons of all bad rows."""
    rows = list(rows)
    bad = []
    for name, row in rows:
        try:
            check(row)
        except (Exception, pytest.fail.Exception) as error:  # the latter: of pytest.raises
            bad.append(f"{name}: {type(error).__name__}: {error}")
    assert rows, "no rows to check"
    if bad:
        pytest.fail(f"{len(bad)} of {len(rows)} rows are bad\n" + "\n".join(bad), pytrace=False)
