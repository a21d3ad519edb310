"""Selected slices keep their position in the geometry of the volume."""

import numpy as np
import pytest
import torch

from pnpcm.mri.scan import Geometry, crop_centre, geometry_of
from pnpcm.mri.writers import Volume

OBLIQUE = Geometry(
    voxel=(1.5, 2.0, 4.0),
    position=(10.0, -20.0, 5.0),
    readout=(0.0, 0.6, 0.8),
    phase=(1.0, 0.0, 0.0),
    slice=(0.0, 0.8, -0.6),
    known=True,
)


def affine(n: int, geometry: Geometry) -> np.ndarray:
    image = torch.ones(n, 6, 5, dtype=torch.complex64)
    return Volume(image, torch.ones(5, dtype=torch.bool), "v", geometry=geometry).affine()


@pytest.mark.parametrize("chosen", [[2], [1, 2, 3], [0, 3, 6], list(range(8))])
def test_a_voxel_stays_where_it_is(chosen: list[int]) -> None:
    whole, part = affine(8, OBLIQUE), affine(len(chosen), geometry_of(OBLIQUE, 8, chosen))
    for k, i in enumerate(chosen):
        np.testing.assert_allclose(part @ [4, 1, k, 1], whole @ [4, 1, i, 1], atol=1e-9)


@pytest.mark.parametrize("chosen", [[0, 1, 3], [3, 2, 1]])
def test_an_uneven_choice_has_no_geometry(chosen: list[int]) -> None:
    assert not geometry_of(OBLIQUE, 8, chosen).known


def test_the_centre_of_a_crop_is_that_of_the_image() -> None:
    image = torch.arange(7 * 8).reshape(7, 8)
    for size in ((3, 4), (4, 3), (7, 8)):
        cut = crop_centre(image, size)
        assert cut[size[0] // 2, size[1] // 2] == image[3, 4]
