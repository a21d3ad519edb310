"""Measurements in another range than [-1, 1], and tensors that restore does not take."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from golden import gen
from pnpcm import measure, restore
from pnpcm.errors import ArgumentError
from pnpcm.operators import FunctionOperator, GaussianBlur, Inpainting, SuperResolution
from pnpcm.problems import Denoise

SIZE = (24, 24)


def image() -> Tensor:
    """A smooth image that takes all values of [-1, 1]."""
    row, column = torch.linspace(-1, 1, SIZE[0])[:, None], torch.linspace(-1, 1, SIZE[1])
    return torch.stack([row * column, row + 0 * column, -row * column])[None]


OPERATORS = {
    "denoise": Denoise(),
    "blur": GaussianBlur((3, *SIZE), 5, 2.0),
    "inpainting": Inpainting.random(SIZE, missing=0.3, generator=gen(1)),
    "superresolution": SuperResolution((3, *SIZE), 2),
}


def measured(name: str, x: Tensor) -> Tensor:
    operator = OPERATORS[name]
    return x if isinstance(operator, Denoise) else operator.A(x)  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", OPERATORS)
def test_an_image_of_8_bits_is_refused(name: str) -> None:
    y = measured(name, (image() + 1) * 127.5)
    with pytest.raises(ArgumentError, match=r"y has values from .* give y / 127.5 - 1"):
        restore(y, OPERATORS[name], "gaussian", sigma_y=0.05)
    with pytest.raises(ArgumentError, match=r"expected an image in \[-1, 1\]"):
        restore(y, OPERATORS[name], "gaussian", sigma_y="auto")


@pytest.mark.parametrize("std", [10.0, 25.0, 100.0])
def test_the_hint_for_8_bits_does_not_depend_on_noise(std: float) -> None:
    y = (image() + 1) * 127.5
    y = y + std * torch.randn(y.shape, generator=gen(2))
    assert float(y.min()) < 0
    assert float(y.max()) > 256
    with pytest.raises(ArgumentError, match=r"y has values from -.* give y / 127.5 - 1"):
        restore(y, Denoise(), "gaussian", sigma_y=std / 255)


@pytest.mark.parametrize("name", OPERATORS)
def test_an_image_on_0_to_1_does_not_pass_the_self_check(name: str) -> None:
    y = measured(name, (image() + 1) / 2)
    done = restore(y, OPERATORS[name], "gaussian", sigma_y=0.05)
    assert any("give 2 * y - 1" in warning for warning in done.check.warnings)
    assert not done.check.ok
    assert done.check.verdict.endswith("but y seems to have another range")
    assert done.report().count("give 2 * y - 1") == 1


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("sigma_y", [0.0, 0.05, 0.5])
def test_images_in_our_range_get_none_with_any_noise(name: str, sigma_y: float) -> None:
    y = measured(name, image())
    y = y + 2 * sigma_y * torch.randn(y.shape, generator=gen(2)) * (y != 0)
    for given in (sigma_y, "auto"):
        done = restore(y, OPERATORS[name], "gaussian", sigma_y=given)
        assert "2 * y - 1" not in done.report()


def test_an_operator_of_another_scale_is_not_judged() -> None:
    operator = FunctionOperator(
        lambda x: 100 * x, (3, *SIZE), linear=True, adjoint=lambda y: 100 * y
    )
    y = measure(operator, image(), 0.05, generator=gen(3))
    assert restore(y, operator, "gaussian", sigma_y=0.05).x.shape == image().shape


def test_tensors_that_are_no_measurement_are_refused() -> None:
    x = image()
    with pytest.raises(ArgumentError, match=r"y has dtype torch.uint8.*x.float\(\) / 127.5 - 1"):
        restore(((x + 1) * 127.5).to(torch.uint8), Denoise(), "gaussian")
    with pytest.raises(ArgumentError, match=r"y requires a gradient.*y\.detach\(\)"):
        restore(x.clone().requires_grad_(), Denoise(), "gaussian")
    with pytest.raises(ArgumentError, match=r"y is a list, expected a torch\.Tensor"):
        restore(x.tolist(), Denoise(), "gaussian")
    with pytest.raises(ArgumentError, match=r"sigma_y must be from 0 to 1, got 25.*write 0.098"):
        restore(x, Denoise(), "gaussian", sigma_y=25)
    with pytest.raises(ArgumentError, match=r"sigma_y must be from 0 to 1, got 25.*write 0.098"):
        measure(GaussianBlur((3, *SIZE), 5, 2.0), x, 25, generator=gen())
