"""Reading and writing of photographs: 8 or 16 bits, alpha, colour profile, EXIF.

Pillow silently reduces 16-bit colour to 8 bits, so the pixels of 16-bit PNG files are decoded here
(PNG specification, third edition) and those of TIFF files by ``tifffile``. All other formats are
read by Pillow. Pixels are never rotated: the orientation stays in EXIF.
"""

from pnpcm.io.photos.base import ONLY_IMAGES, SUFFIXES, UNREADABLE, unreadable
from pnpcm.io.photos.photo import Photo, as_stored, check_photo, read_photo, upright, write_photo

__all__ = ["Photo", "read_photo", "write_photo", "ONLY_IMAGES", "SUFFIXES"]
__all__ += ["UNREADABLE", "as_stored", "check_photo", "unreadable", "upright"]
