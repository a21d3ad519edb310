"""Published arrays and a published face against the figures of docs/method.md §7."""

import hashlib

import numpy as np
import pytest
import torch

from golden import needs, relative
from pnpcm.io.files import read_image
from pnpcm.metrics import psnr
from pnpcm.operators import JPEG, GaussianBlur, Inpainting
from pnpcm.operators.nonlinear_blur import default_code
from pnpcm.places import resolve

pytestmark = needs("$PNPCM_DATA/papers")
PAPERS = resolve("$PNPCM_DATA/papers")


def test_the_papers_mask_and_kernel_code() -> None:
    mask = np.load(PAPERS / "masks" / "random_70_mask.npy")
    digest = hashlib.sha256(mask.astype(np.uint8).tobytes()).hexdigest()
    assert digest == "ac0e44b4c7e7c85a043b19b214275fe570705587f595547e2926573da842458e"
    operator = Inpainting(mask)
    assert operator.n_measured(torch.zeros(1, 1, 256, 256)) == 19710
    code = np.load(PAPERS / "masks" / "random_kernel_seed_8.npy")
    assert np.array_equal(default_code(512, 2, 2).numpy(), code)


def test_figures_on_a_celeba_face() -> None:
    x = read_image(PAPERS / "celeba_hq" / "img_110.png")
    jpeg = JPEG(5)
    codec, surrogate = jpeg.acquire(x), jpeg.A(x)
    assert float(psnr(codec, x)) == pytest.approx(25.11, abs=6e-3)
    assert float(psnr(surrogate, x)) == pytest.approx(26.17, abs=6e-3)
    gap = ((codec - surrogate) / 2).square().mean()  # not clamped: the codec leaves [-1, 1]
    assert float(-10 * gap.log10()) == pytest.approx(34.85, abs=6e-3)
    true, scrambled = (GaussianBlur((3, 256, 256), reference=r).A(x) for r in (False, True))
    assert float(psnr(true, x)) == pytest.approx(28.52, abs=6e-3)
    assert float(psnr(scrambled, x)) == pytest.approx(25.60, abs=6e-3)
    assert relative(scrambled, true) == pytest.approx(0.072, abs=6e-4)
