"""The signs of phase retrieval, chosen as the paper's code does."""

import torch

from golden import Tanh, code_mask, gen, image
from pnpcm import ConsistencyModel
from pnpcm.operators import PhaseRetrieval
from pnpcm.problems.nonlinear import resolve_signs

PRIOR = ConsistencyModel(Tanh())


def operator(*, reference: bool) -> PhaseRetrieval:
    return PhaseRetrieval(code_mask()[:32, :32], reference=reference)


def test_released_rule_takes_the_signs_nearest_to_the_reference() -> None:
    x = image()[..., :32, :32].float()
    turned = x * torch.tensor([-1.0, 1.0, -1.0])[:, None, None]
    found, note = resolve_signs(operator(reference=True), turned, x, PRIOR)
    assert torch.equal(found, x)
    assert "to the reference" in note


def test_released_rule_asks_a_sample_of_the_prior() -> None:
    """The result does not depend on the signs of the input, and is one of the eight patterns."""
    x = image()[..., :32, :32].float()
    x = x + 0.1 * torch.randn(x.shape, generator=gen())
    found, note = resolve_signs(operator(reference=True), x, None, PRIOR)
    again, _ = resolve_signs(operator(reference=True), -x, None, PRIOR)
    assert torch.equal(found, again)
    assert torch.equal(found.abs(), x.abs())
    assert "a sample of the prior" in note
    assert (
        "a sample of the prior" not in resolve_signs(operator(reference=False), x, None, PRIOR)[1]
    )
