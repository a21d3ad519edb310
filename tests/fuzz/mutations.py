"""Seeded damage to the bytes of a file: flips, length fields, cuts, splices, deep brackets."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable

import numpy as np

Random = np.random.Generator
NUMBERS = (0, 1, 2**7, 2**8 - 1, 2**15, 2**16 - 1, 2**24, 2**31 - 1, 2**31, 2**32 - 1, 2**63)
TEXTS = (b"[" * 3000, b"{" * 3000, b"&a [*a]", b"9" * 5000, b"nan", b"-1e999", b"\xff\xfe\x00")


def _place(data: bytearray, random: Random) -> int:
    """A random position, half of the time in the first 512 bytes, where headers are."""
    end = min(len(data), 512) if random.random() < 0.5 else len(data)
    return int(random.integers(0, max(1, end)))


def flip(data: bytearray, random: Random) -> None:
    """Flip one bit."""
    if data:
        data[_place(data, random)] ^= 1 << int(random.integers(0, 8))


def byte(data: bytearray, random: Random) -> None:
    """Replace one byte."""
    if data:
        data[_place(data, random)] = int(random.integers(0, 256))


def number(data: bytearray, random: Random) -> None:
    """Write an extreme or slightly changed number over 1, 2, 4 or 8 bytes, in either order."""
    size, order = int(random.choice((1, 2, 4, 8))), random.choice(("little", "big"))
    at = _place(data, random)
    old = int.from_bytes(data[at : at + size], order)
    new = int(random.choice(len(NUMBERS))) if random.random() < 0.7 else -1
    value = NUMBERS[new] if new >= 0 else old + int(random.integers(-2, 3))
    data[at : at + size] = (value % 2 ** (8 * size)).to_bytes(size, order)


def cut(data: bytearray, random: Random) -> None:
    """Drop the end."""
    del data[int(random.integers(0, len(data) + 1)) :]


def remove(data: bytearray, random: Random) -> None:
    """Drop a part in the middle."""
    at = _place(data, random)
    del data[at : at + int(random.integers(1, 65))]


def splice(data: bytearray, random: Random) -> None:
    """Copy one part of the file over another place, or insert it there."""
    at, source = _place(data, random), _place(data, random)
    part = data[source : source + int(random.integers(1, 257))]
    data[at : at + (len(part) if random.random() < 0.5 else 0)] = part


def text(data: bytearray, random: Random) -> None:
    """Insert deep brackets, an alias, a long number or bytes that are no text."""
    at = _place(data, random)
    data[at:at] = TEXTS[int(random.integers(0, len(TEXTS)))]


KINDS: tuple[Callable[[bytearray, Random], None], ...]
KINDS = (flip, flip, byte, byte, number, number, number, cut, remove, splice, text)


def mutated(content: bytes, random: Random) -> bytes:
    """``content`` after one to four random changes."""
    data = bytearray(content)
    for _ in range(int(random.integers(1, 5))):
        KINDS[int(random.integers(0, len(KINDS)))](data, random)
    return bytes(data)


def with_png_sums(content: bytes) -> bytes:
    """A PNG file with the check sums of its chunks corrected, so that damage gets past them."""
    data, at = bytearray(content), 8
    while at + 12 <= len(data):
        (size,) = struct.unpack_from(">I", data, at)
        end = at + 8 + size
        if end + 4 > len(data):
            break
        struct.pack_into(">I", data, end, zlib.crc32(data[at + 4 : end]))
        at = end + 4
    return bytes(data)
