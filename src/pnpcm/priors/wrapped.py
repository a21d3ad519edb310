"""WrappedPrior, the base of priors that call another prior and have its levels and range."""

from __future__ import annotations

from typing import Any

from torch import nn

from pnpcm.core import Prior, ValueRange
from pnpcm.counted import check_prior


class WrappedPrior(nn.Module):
    """A prior that calls ``prior`` and has its members; a module, so that ``.to`` moves both."""

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
        """Kind of the inner prior; an AttributeError if it has none, as for ``network``."""
        kind: str = getattr(self.prior, "kind")  # noqa: B009  # no member of the protocol
        return kind

    @property
    def network(self) -> Any:
        """The network of the inner prior."""
        return getattr(self.prior, "network")  # noqa: B009

    @property
    def info(self) -> dict[str, Any]:
        """The metadata of the inner prior."""
        info: dict[str, Any] = getattr(self.prior, "info", {})
        return info
