"""What priors around another prior share: its levels, range, cost and story."""

from __future__ import annotations

from typing import Any

from torch import nn

from pnpcm.core import Prior, ValueRange
from pnpcm.counted import check_prior


class WrappedPrior(nn.Module):
    """A prior that calls ``prior`` and has its members; a module, so that ``.to`` reaches it."""

    def __init__(self, prior: Prior) -> None:
        super().__init__()
        check_prior(prior)
        self.prior = prior

    @property
    def value_range(self) -> ValueRange:
        return self.prior.value_range

    @property
    def sigma_min(self) -> float:
        return self.prior.sigma_min

    @property
    def sigma_max(self) -> float:
        return self.prior.sigma_max

    @property
    def nfe_per_call(self) -> int:
        return self.prior.nfe_per_call

    @property
    def kind(self) -> str:
        """Of the inner prior; like ``network``, there only if it is there."""
        kind: str = getattr(self.prior, "kind")  # noqa: B009  # no member of the protocol
        return kind

    @property
    def network(self) -> Any:
        """The bare network at the bottom."""
        return getattr(self.prior, "network")  # noqa: B009

    @property
    def info(self) -> dict[str, Any]:
        """What the file of the inner prior says about it."""
        info: dict[str, Any] = getattr(self.prior, "info", {})
        return info
