"""EXIF tags: copied to another file, adapted to another image size."""

from __future__ import annotations

import struct
from pathlib import Path

from PIL import Image

from pnpcm.io.photos.base import DAMAGE

EXIF = b"Exif\0\0"
# tags about storage and position of the pixels, their profile, and Photoshop's layers
_LAYOUT = {254, 255, 256, 257, 258, 259, 262, 266, 273, 277, 278, 279, 280, 281, 284, 292, 293}
_LAYOUT |= {*range(317, 326), 330, 338, 339, 340, 341, 347, *range(512, 522), *range(529, 533)}
_LAYOUT |= {32781, 34377, 34675, 37724}


def exif_of_tiff(path: Path) -> bytes | None:
    """The tags of a TIFF file that do not describe its layout; None if they cannot be read."""
    exif = Image.Exif()
    try:
        with path.open("rb") as file:
            exif.load_from_fp(file)
            for tag in list(exif):
                if tag in _LAYOUT:
                    del exif[tag]
            return exif.tobytes().removeprefix(EXIF) if len(exif) else None
    except DAMAGE:
        return None


def tags(payload: bytes | None) -> Image.Exif:
    """The EXIF tags that do not describe the layout; none if the payload is not valid EXIF."""
    exif = Image.Exif()
    if payload:
        try:
            exif.load(EXIF + payload)
            for tag in _LAYOUT & set(exif):
                del exif[tag]
            exif.tobytes()
        except DAMAGE:
            return Image.Exif()
    return exif


def resize_exif(exif: bytes, width: int, height: int) -> bytes:
    """``exif`` with new width and height; no other byte moves, since MakerNotes hold offsets."""
    out = bytearray(exif)
    order = "<" if exif[:2] == b"II" else ">"
    sides = {0x100: width, 0x101: height, 0xA002: width, 0xA003: height}
    try:
        main = struct.unpack_from(f"{order}I", out, 4)[0]
        camera = [value for tag, _, value, _ in _entries(out, main, order) if tag == 0x8769]
        for start in (main, *camera[:1]):
            for tag, kind, value, at in _entries(out, start, order):
                if tag in sides and kind in (3, 4) and value != sides[tag]:
                    kind = 3 if kind == 3 and sides[tag] < 2**16 else 4
                    number = struct.pack(f"{order}{'HI'[kind - 3]}", sides[tag]).ljust(4, b"\0")
                    struct.pack_into(f"{order}HHI4s", out, at, tag, kind, 1, number)
    except struct.error:  # not valid EXIF: unchanged
        return exif
    return bytes(out)


def _entries(exif: bytearray, start: int, order: str) -> list[tuple[int, int, int, int]]:
    """Tag, type, value (or offset) and position of each entry of one directory."""
    found = []
    for i in range(struct.unpack_from(f"{order}H", exif, start)[0]):
        at = start + 2 + 12 * i
        tag, kind = struct.unpack_from(f"{order}HH", exif, at)
        found.append((tag, kind, struct.unpack_from(order + "IH"[kind == 3], exif, at + 8)[0], at))
    return found
