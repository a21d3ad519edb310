"""What a JPEG file tells about its compression: tables and chroma sampling."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from pnpcm.errors import ArgumentError
from pnpcm.operators import jpeg_codec as codec


def read_header(path: Path) -> tuple[list[Any], str]:
    """Tables (natural order) and chroma sampling of a JPEG file, by Pillow."""
    from PIL import Image, JpegImagePlugin, UnidentifiedImageError

    try:
        image = Image.open(path)
    except FileNotFoundError:
        raise
    except UnidentifiedImageError as error:
        raise ArgumentError(
            f"path is {str(path)!r}, expected a JPEG file; Pillow does not know this format"
        ) from error
    except (OSError, SyntaxError) as error:
        raise ArgumentError(f"path is {str(path)!r}, which cannot be read: {error}") from error
    with image:
        # MPO, the files of many phones, is a JpegImageFile too
        if not isinstance(image, JpegImagePlugin.JpegImageFile):
            raise ArgumentError(
                f"path is {str(path)!r}, a {image.format} file, expected a JPEG; tables of a "
                "converted copy would describe the conversion, so give the original .jpg"
            )
        layers = [tuple(layer) for layer in image.layer]  # (id, columns, rows, table) each
        quantization = dict(image.quantization)
        mode, transform = image.mode, image.info.get("adobe_transform")
    if mode not in ("L", "RGB"):
        raise ArgumentError(
            f"path is {str(path)!r}, a JPEG in {mode}, expected grey or RGB; "
            "CMYK files are coded without YCbCr and cannot be modelled"
        )
    if mode == "RGB" and (transform == 0 or [layer[0] for layer in layers] == list(b"RGB")):
        raise ArgumentError(
            f"path is {str(path)!r}, a JPEG that stores R, G, B without YCbCr; "
            "give a file in the usual colour space"
        )
    tables = [torch.tensor(quantization[layer[3]]).reshape(8, 8) for layer in layers]
    if mode == "L":
        return [tables[0], tables[0]], "4:4:4"
    cells = {(layers[0][2] / rows, layers[0][1] / columns) for _, columns, rows, _ in layers[1:]}
    names = [name for name, factors in codec.SUBSAMPLING.items() if cells == {factors}]
    if not names or not torch.equal(tables[1], tables[2]):
        raise ArgumentError(
            f"path is {str(path)!r}, whose components (id, columns, rows, table) are {layers}; "
            f"expected one chrominance table and sampling {', '.join(codec.SUBSAMPLING)}"
        )
    return tables[:2], names[0]
