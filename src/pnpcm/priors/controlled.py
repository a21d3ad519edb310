"""Controlled consistency models: a frozen one with a ControlNet for the measurement."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pnpcm.core import Prior
from pnpcm.errors import ArgumentError, CheckpointError, ShapeError
from pnpcm.linalg import expand
from pnpcm.networks import UNet, UNetConfig
from pnpcm.networks.control import ControlledUNet, ControlNet
from pnpcm.priors.base import NetworkPrior, consistency_scalings, levels
from pnpcm.priors.checkpoint import read_header, read_own, write_own
from pnpcm.priors.consistency import ConsistencyModel
from pnpcm.priors.files import INVALID, build_empty, fill
from pnpcm.priors.info import checked_info


class ControlledModel(NetworkPrior):
    r"""A consistency function with a hint h, an image computed from the measurement.

    .. math:: f(v, \sigma, h) = c_{skip}(\sigma)\, v + c_{out}(\sigma)\,
              F(c_{in}(\sigma)\, v,\ c_{noise}(\sigma),\ c_{in}(\sigma)\, h),
              \qquad f(v, \sigma_{min}, h) = v

    F is the frozen network of ``prior`` with ``control``. Without a hint it equals ``prior``.
    ``scaled_hint=False``: the input is h, not c_in h. At σ = 80 the published scaling multiplies
    the hint by 1/80, which takes tens of thousands of training steps to compensate. ``info``:
    metadata of ``control``, e.g. the task it was trained for, stored as ``info["control"]``. One
    call counts as one evaluation, as in the literature, although the ControlNet adds about a third
    of the work. Zhao et al., CoSIGN (ECCV 2024).
    """

    kind = "consistency"
    takes_hint = True

    def __init__(
        self,
        prior: ConsistencyModel,
        control: ControlNet,
        *,
        scaled_hint: bool = True,
        info: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(
            ControlledUNet(_unet(prior), control),
            sigma_min=prior.sigma_min,
            sigma_max=prior.sigma_max,
            value_range=prior.value_range,
            any_size=prior.any_size,
        )
        self.sigma_data, self.c_noise = prior.sigma_data, prior.c_noise
        self.scaled_hint = scaled_hint
        self.info = prior.info | {"control": dict(info or {})}

    def forward(self, x: Tensor, sigma: float | Tensor, *, hint: Tensor | None = None) -> Tensor:
        if hint is not None and hint.shape != x.shape:
            raise ShapeError(
                f"hint has shape {tuple(hint.shape)} and x {tuple(x.shape)}; a hint is an image "
                "like x, e.g. solvers.problem.back_projection(operator, y)"
            )
        c = consistency_scalings(
            levels(sigma, x), self.sigma_data, self.sigma_min, c_noise=self.c_noise
        )
        c_skip, c_out, c_in = (expand(s.to(x.dtype), x) for s in c[:3])
        beside = {} if hint is None else {"hint": c_in * hint if self.scaled_hint else hint}
        return c_skip * x + c_out * self.run_network(c_in * x, c.c_noise, **beside)

    @property
    def control(self) -> ControlNet:
        return self._parts.control

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the frozen network, see :func:`fingerprint`."""
        return fingerprint(self._parts.frozen)

    @property
    def _parts(self) -> ControlledUNet:
        assert isinstance(self.network, ControlledUNet)
        return self.network

    @classmethod
    def example(cls, channels: int = 3) -> ControlledModel:
        """A tiny prior with fixed weights that reads its hints, for the laws."""
        config = UNetConfig(
            image_size=None, in_channels=channels, model_channels=8, channel_mult=(1, 1),
            num_res_blocks=1, attention_ds=(), middle_attention=False, norm=False,
        )  # fmt: skip
        with torch.device("meta"):  # no numbers from the global generator
            network, control = UNet(config), ControlNet(config)
        generator = torch.Generator().manual_seed(0)
        for half in (network, control):
            half.to_empty(device="cpu").double()  # rounding of float32 would hide what laws test
            for p in half.parameters():
                nn.init.normal_(p, std=0.1, generator=generator)
        return cls(ConsistencyModel(network), control).eval()


def fingerprint(network: nn.Module) -> str:
    """16 hex digits of a hash of the weights, rounded to half precision.

    A prior has the same fingerprint whether it was stored in half or in full precision.
    """
    digest = hashlib.blake2b(digest_size=8)
    for name, tensor in sorted(network.state_dict().items()):
        half = tensor.detach().to("cpu", torch.float16).contiguous()
        digest.update(name.encode() + half.numpy().tobytes())
    return digest.hexdigest()


def save_control(
    prior: ControlledModel,
    path: str | Path,
    *,
    info: Mapping[str, Any] | None = None,
    dtype: torch.dtype | None = None,
) -> None:
    """Write the ControlNet and the fingerprint of its prior as one ``.safetensors`` file.

    ``info`` is added to ``prior.info["control"]``. ``dtype``: as for ``save_prior``.
    """
    header = {
        "kind": "control",
        "network": prior.control.config.to_dict(),
        "prior": {"name": prior.info.get("name"), "fingerprint": prior.fingerprint},
        "options": {"scaled_hint": prior.scaled_hint},
        "info": prior.info["control"] | dict(info or {}),
    }
    write_own(prior.control, path, header, dtype)


def load_control(path: str | Path, prior: Prior) -> ControlledModel:
    """``prior`` with the ControlNet in a file of :func:`save_control`.

    ``prior`` must be the consistency model it was trained with, by the fingerprint of its weights.
    """
    path = Path(path)
    network = _unet(prior)
    assert isinstance(prior, ConsistencyModel)
    header = _header(path)
    wanted = header["prior"]
    if wanted.get("fingerprint") != fingerprint(network):
        raise CheckpointError(
            f"{path} was trained for the prior {wanted.get('name')!r} with weights "
            f"{wanted.get('fingerprint')}, not for {prior.info.get('name')!r} with weights "
            f"{fingerprint(network)}; load that prior, or train again: pnpcm train cosign"
        )
    control, scaled_hint = read_control(path), bool(header["options"]["scaled_hint"])
    model = ControlledModel(prior, control, scaled_hint=scaled_hint, info=header["info"])
    return model.eval().requires_grad_(False)


def read_control(path: Path) -> ControlNet:
    """The ControlNet in a file, whatever consistency model it was trained with."""
    state = read_own(path)
    control = build_empty(path, ControlNet, _header(path)["network"], state)
    fill(path, control, state, "was the file edited?")
    return control


def _header(path: Path) -> dict[str, Any]:
    """The parts of the header that are used, checked."""
    header = read_header(path)
    if header.get("kind") != "control":
        raise CheckpointError(f"{path} holds a prior, not a ControlNet; load it with load_prior")
    try:
        return {
            "prior": dict(header["prior"]),
            "info": checked_info(header["info"]),
            "network": UNetConfig.from_dict(header["network"]),
            "options": {"scaled_hint": header["options"]["scaled_hint"]},
        }
    except INVALID as error:
        raise CheckpointError(
            f"{path} has an invalid pnpcm header ({error}); save it again"
        ) from error


def _unet(prior: Prior) -> UNet:
    network = getattr(prior, "network", None)
    if not isinstance(prior, ConsistencyModel) or not isinstance(network, UNet):
        raise ArgumentError(
            f"prior is a {type(prior).__name__} with a {type(network).__name__}, a ControlNet "
            "needs a ConsistencyModel with a networks.UNet; use load_prior(name)"
        )
    return network
