"""Configurations in YAML files: reading, and building of frozen dataclasses."""

from __future__ import annotations

import dataclasses
import types
import typing
from pathlib import Path
from typing import Any

from pnpcm.errors import ArgumentError, UnknownNameError
from pnpcm.io.reading import library, read_text, reading

DEPTH = 50
"""Largest number of lists or mappings inside each other."""
LARGEST = 100_000
"""Largest number of values; aliases can make a small text a huge value."""


def read_mapping(path: str | Path, what: str, examples: str) -> dict[str, Any]:
    """The fields of a YAML file. ``what``: word for errors, ``examples``: where some are."""
    path = Path(path)
    if not path.is_file():
        raise ArgumentError(f"{what} is {path}, which is not a file; see {examples} for examples")
    with reading(f"{what} {path}", "YAML", move=f"see {examples} for examples"):
        values = _load(read_text(path))
    if not isinstance(values, dict):
        raise ArgumentError(f"{what} {path} must be a mapping of fields, see {examples}")
    return values


def parse(text: str) -> Any:
    """The value of a YAML expression."""
    with reading(repr(text), "a value", move="write it as in a YAML file"):
        return _load(text)


def _load(text: str) -> Any:
    """The value of a YAML text of bounded depth and, with its aliases written out, length."""
    yaml = library("yaml", "YAML files", "train")
    total = 0
    sizes: dict[str | None, int] = {}  # values that each anchor stands for
    open_nodes: list[tuple[str | None, int]] = []
    for event in yaml.parse(text, yaml.SafeLoader):  # lazily: deep texts take very long
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in sizes:
                raise ValueError(f"the alias *{event.anchor} is inside its own value, or has none")
            total += sizes[event.anchor]
        elif isinstance(event, yaml.CollectionStartEvent):
            total += 1
            open_nodes.append((event.anchor, total))
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = open_nodes.pop()
            sizes[anchor] = total - before + 1
        elif isinstance(event, yaml.ScalarEvent):
            total += 1
            sizes[event.anchor] = 1
        if len(open_nodes) > DEPTH:
            raise ValueError(f"it has more than {DEPTH} lists inside each other")
        if total > LARGEST:
            raise ValueError(f"it has more than {LARGEST} values")
    return yaml.safe_load(text)


def dump(values: dict[str, Any]) -> str:
    """Plain values as YAML, in their order."""
    text: str = library("yaml", "YAML files", "train").safe_dump(
        values, sort_keys=False, allow_unicode=True, width=100
    )
    return text


def build(cls: type[Any], values: dict[str, Any], **classes: type[Any]) -> Any:
    """A configuration from plain values; nested ones by the annotations of their fields."""
    hints = typing.get_type_hints(cls) | classes
    names = {f.name for f in dataclasses.fields(cls)}
    arguments = {}
    for name, value in values.items():
        if name not in names:
            raise UnknownNameError(f"field of {cls.__name__}", str(name), names)  # 1: is a number
        arguments[name] = _convert(hints[name], value, f"{cls.__name__}.{name}")
    try:
        return cls(**arguments)
    except TypeError as error:
        raise ArgumentError(f"{cls.__name__}: {error}") from error


def _convert(hint: Any, value: Any, where: str) -> Any:
    """``value`` of the YAML file, converted to the type of the field."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        if not isinstance(value, dict):
            raise ArgumentError(f"{where} is {value!r}, expected a mapping of fields")
        return build(hint, value)
    if origin in (typing.Union, types.UnionType):
        if value is None and type(None) in inner:
            return None
        kinds = [kind for kind in inner if kind is not type(None)]
        return _convert(kinds[0], value, where) if len(kinds) == 1 else value
    if origin is tuple:
        items = value if isinstance(value, list | tuple) else [value]
        return tuple(_convert(inner[0], item, where) for item in items)
    if hint is float and not isinstance(value, bool):
        try:
            return float(value)  # YAML reads 1e-4 as a string
        except (TypeError, ValueError, OverflowError):
            raise ArgumentError(f"{where} is {repr(value)[:60]}, expected a number") from None
    if hint in (int, str, bool) and type(value) is not hint:
        raise ArgumentError(f"{where} is {value!r}, expected {hint.__name__}")
    return value
