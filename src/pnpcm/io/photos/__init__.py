"""Photographs as people have them: 8 or 16 bits, alpha, colour profile, camera data.

Pillow reduces 16-bit colour to 8 bits without a word, so the pixels of 16-bit PNG files are decoded
here (PNG specification, third edition) and those of TIFF files by ``tifffile``. Everything else is
Pillow's work. Pixels are never rotated: the orientation stays in EXIF, where viewers look for it.
"""

from pnpcm.io.photos.base import MAX_PIXELS, SUFFIXES
from pnpcm.io.photos.photo import Photo, read_photo, write_photo

__all__ = ["Photo", "read_photo", "write_photo", "SUFFIXES", "MAX_PIXELS"]
