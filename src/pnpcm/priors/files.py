"""Reading of checkpoint files, without executing code, and loading of their weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol, TypeVar

import torch
from torch import Tensor, nn

from pnpcm.errors import CheckpointError
from pnpcm.io.tensors import check_held, load_plain

StateDict = Mapping[str, Tensor]


class Architecture(Protocol):
    """Configuration of a network."""

    @property
    def stages(self) -> int:
        """Number of its parts, each with at least one tensor."""
        ...


INVALID = (
    *(KeyError, TypeError, ValueError, AttributeError, IndexError, ArithmeticError),
    RecursionError,
)
"""What values of a file that are of a wrong type, out of range or too deeply nested raise."""
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
A = TypeVar("A", bound=Architecture)
N = TypeVar("N", bound=nn.Module)


def check_foreign(path: Path) -> None:
    """Raise an error for files that are not checkpoints: empty, web pages, Git LFS pointers."""
    if not path.is_file():
        raise CheckpointError(f"{path} is not a file; check the path")
    with path.open("rb") as file:
        head = file.read(512)
    if not head:
        raise CheckpointError(f"{path} is empty; download it again")
    if head.lstrip().lower().startswith((b"<!doctype", b"<html", b"<?xml")):
        raise CheckpointError(f"{path} is a web page; download the file itself")
    if head.startswith(b"version https://git-lfs"):
        raise CheckpointError(f"{path} is a Git LFS pointer; run git lfs pull")


def read_pt(path: Path) -> dict[str, Tensor]:
    """The flat state dict in a ``.pt`` file, memory-mapped if possible."""
    check_foreign(path)
    with path.open("rb") as file:
        if file.read(9)[8:] == b"{":  # newer versions of torch.load would read it
            raise CheckpointError(
                f"{path} is a safetensors file, not a .pt file; our own are read by load_own"
            )
    try:
        state = load_plain(path)
    except MemoryError:
        raise
    except Exception as error:  # an unpickler can raise anything
        raise CheckpointError(
            f"{path} is damaged, or holds more than plain tensors, which is not executed; "
            "download it again, or save a bare state dict with torch.save"
        ) from error
    if not isinstance(state, dict) or not state:
        raise CheckpointError(f"{path} holds a {type(state).__name__}, expected a state dict")
    for name, tensor in state.items():
        if not isinstance(name, str) or not isinstance(tensor, Tensor):
            raise CheckpointError(
                f"{path} holds a {type(tensor).__name__} under {name!r}, expected a flat "
                "dictionary name → tensor; save the inner state dict alone with torch.save"
            )
    check_held(path, state)
    return state


def build_empty(path: Path, build: Callable[[A], N], config: A, state: StateDict) -> N:
    """``build(config)`` on the meta device: no memory and no random numbers for its weights.

    A configuration with more parts than the file has tensors is refused before it is built, so
    that the time is bounded by the size of the file.
    """
    if config.stages > len(state):
        raise CheckpointError(
            f"{path} describes a network of {config.stages} blocks, but holds only {len(state)} "
            "tensors; the file was edited or is incomplete"
        )
    try:
        with torch.device("meta"):
            return build(config)
    except (RuntimeError, OverflowError) as error:
        raise CheckpointError(
            f"{path} describes a network of a size that cannot be built ({error}); save it again"
        ) from error


def fill(path: Path, network: nn.Module, state: StateDict, move: str) -> None:
    """Load the weights of ``path`` into a network on the meta device, in float32."""
    wanted = {name: t.shape for name, t in network.state_dict().items()}
    problems = {
        "missing": [n for n in wanted if n not in state],
        "unexpected": [n for n in state if n not in wanted],
        "misshapen": [n for n in wanted if n in state and state[n].shape != wanted[n]],
    }
    found = [f"{len(n)} {what} ({', '.join(n[:3])}{', …' * (len(n) > 3)})"
             for what, n in problems.items() if n]  # fmt: skip
    if found:
        raise CheckpointError(f"{path} does not fit the network: {', '.join(found)}; {move}")
    odd = [f"{n} ({t.dtype})" for n, t in state.items() if t.dtype not in FLOATS]
    if odd:
        raise CheckpointError(
            f"{path} holds weights that are not floats of 16, 32 or 64 bits: {', '.join(odd[:3])}; "
            "save it again"
        )
    broken = [n for n, t in state.items() if not bool(torch.isfinite(t).all())]
    if broken:
        raise CheckpointError(
            f"{path} holds NaN or infinity in {', '.join(broken[:3])}; download or train it again"
        )
    network.load_state_dict({n: t.float() for n, t in state.items()}, assign=True)
    # about 15 % faster on a CPU; torch's annotations lack this overload
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
