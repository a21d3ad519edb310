"""A record of any depth as HTML tables: what the page says in words and numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

LONG = 8
"""Lists of more values than this are folded."""


def record_tables(record: Mapping[str, Any]) -> str:
    """One titled table for each group of the record; single values come first, together."""
    single = {key: value for key, value in record.items() if not _is_group(value)}
    groups = {key: value for key, value in record.items() if _is_group(value)}
    sections = [f"<section>{_pairs(single)}</section>"] if single else []
    for key, value in groups.items():
        sections.append(f"<section><h3>{escape(_title(key))}</h3>{_table(value)}</section>")
    if not sections:
        return "<p>Nothing was recorded.</p>"
    return '<div class="tables">' + "\n".join(sections) + "</div>"


def _table(value: Any) -> str:
    """A matrix for rows of one kind (scores by convention, by slice), else names and values."""
    if isinstance(value, Mapping):
        rows = list(value.items())
        if len(rows) > 0 and all(_is_flat(row) for _, row in rows):
            return _matrix(rows)
        return _pairs(value)
    folded = len(value) > LONG
    matrix = _matrix([(str(k), row) for k, row in enumerate(value)])
    return f"<details><summary>{len(value)} rows</summary>{matrix}</details>" if folded else matrix


def _matrix(rows: Sequence[tuple[str, Mapping[str, Any]]]) -> str:
    columns = list(dict.fromkeys(key for _, row in rows for key in row))
    head = "".join(f"<th>{escape(str(c))}</th>" for c in columns)
    lines = []
    for name, row in rows:
        cells = "".join(f"<td>{text(row[c]) if c in row else '–'}</td>" for c in columns)
        lines.append(f"<tr><th>{escape(str(name))}</th>{cells}</tr>")
    return (
        f'<div class="scroll"><table><thead><tr><th></th>{head}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table></div>"
    )


def _pairs(values: Mapping[str, Any]) -> str:
    """Two columns; groups below are spelled out as ``group · name``."""
    lines = [
        f"<tr><th>{escape(key)}</th><td>{text(value)}</td></tr>" for key, value in _flat(values)
    ]
    return f'<div class="scroll"><table><tbody>{"".join(lines)}</tbody></table></div>'


def _flat(values: Mapping[str, Any], before: str = "") -> list[tuple[str, Any]]:
    found = []
    for key, value in values.items():
        name = f"{before}{key}"
        if isinstance(value, Mapping) and value:
            found += _flat(value, f"{name} · ")
        else:
            found.append((name, value))
    return found


def text(value: Any) -> str:
    """A value as escaped HTML: five digits of a number, long lists folded."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.5g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{escape(str(k))} {text(v)}" for k, v in value.items()) or "–"
    if isinstance(value, list | tuple):
        joined = ", ".join(text(v) for v in value) or "–"
        if len(value) > LONG:
            return f"<details><summary>{len(value)} values</summary>{joined}</details>"
        return joined
    return escape(str(value))


def _title(key: str) -> str:
    words = str(key).replace("_", " ")
    return words[:1].upper() + words[1:]


def _is_group(value: Any) -> bool:
    if isinstance(value, Mapping):
        return bool(value)
    return isinstance(value, list | tuple) and len(value) > 0 and all(_is_flat(v) for v in value)


def _is_flat(value: Any) -> bool:
    """A mapping of single values."""
    if not isinstance(value, Mapping) or not value:
        return False
    return not any(isinstance(v, Mapping | list | tuple) for v in value.values())
