"""Operators of a recipe, by name and options, for the images of a batch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from pnpcm.errors import ArgumentError
from pnpcm.operators import OPERATORS, Inpainting, OperatorBase


def operator_for(
    name: str, options: Mapping[str, Any], x: Tensor, generators: list[torch.Generator]
) -> OperatorBase:
    """The operator ``name`` for images like ``x``; inpainting draws one mask per image."""
    channels, height, width = x.shape[1:]
    try:
        if OPERATORS[name] is Inpainting:
            return Inpainting.random((height, width), generator=generators, **options)
        return _fixed(name, json.dumps(dict(options)), (channels, height, width))
    except TypeError as error:
        raise ArgumentError(
            f"operator {name!r} cannot be built for training from options {dict(options)}: {error}"
        ) from error


@lru_cache(maxsize=4)
def _fixed(name: str, options: str, image_shape: tuple[int, int, int]) -> OperatorBase:
    """Operators are stateless, and some take long to build."""
    return OPERATORS[name](image_shape, **json.loads(options))  # type: ignore[call-arg]
