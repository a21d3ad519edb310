"""Scores against scikit-image and the formulas, written out."""

import numpy as np
import pytest
import torch
from skimage.metrics import peak_signal_noise_ratio, structural_similarity

from pnpcm.errors import ShapeError
from pnpcm.mri.scores import fastmri_scores, paper_scores


def volumes() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(0)
    reference = torch.rand((3, 20, 24), generator=g) * torch.tensor([1.0, 3.0, 2.0])[:, None, None]
    phase = torch.polar(torch.ones(1), torch.tensor(0.7))
    image = (reference + 0.1 * torch.randn((3, 20, 24), generator=g)) * phase
    support = torch.rand((3, 20, 24), generator=g) < 0.8
    return image, reference * phase, support


def test_paper_convention() -> None:
    image, reference, support = volumes()
    scores = paper_scores(image, reference, support)
    psnrs, ssims = [], []
    for a, b, s in zip(image, reference, support, strict=True):
        a, b = (a.abs() * s).numpy(), (b.abs() * s).numpy()
        a, b = a / b.max(), b / b.max()
        psnrs.append(20 * np.log10(b.max() / (np.sqrt(np.mean((a - b) ** 2)) + 1e-10)))
        ssims.append(structural_similarity(b, a, data_range=1))
    assert scores.psnr == pytest.approx(np.mean(psnrs), abs=1e-4)
    assert scores.psnr_std == pytest.approx(np.std(psnrs, ddof=1), abs=1e-4)
    assert scores.ssim == pytest.approx(np.mean(ssims), abs=1e-5)
    assert "paper" in str(scores)


def test_fastmri_convention() -> None:
    image, reference, _ = volumes()
    scores = fastmri_scores(image, reference.abs())
    a, b = image.abs().numpy(), reference.abs().numpy()
    top = b.max()
    expected = [structural_similarity(t, x, data_range=top) for x, t in zip(a, b, strict=True)]
    assert scores.psnr == pytest.approx(peak_signal_noise_ratio(b, a, data_range=top), abs=1e-4)
    assert scores.ssim == pytest.approx(np.mean(expected), abs=1e-5)
    assert scores.nmse == pytest.approx(
        np.linalg.norm(b - a) ** 2 / np.linalg.norm(b) ** 2, rel=1e-4
    )


def test_empty_slices_do_not_count_and_shapes_must_agree() -> None:
    image, reference, support = volumes()
    whole = paper_scores(image[:2], reference[:2], support[:2])
    reference[2] = 0
    assert paper_scores(image, reference, support).psnr == pytest.approx(whole.psnr)
    with pytest.raises(ShapeError, match="two equal"):
        paper_scores(image[:1], reference, support)
