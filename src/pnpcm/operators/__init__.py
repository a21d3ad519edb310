"""Forward models. To add one: a file with a class that has ``example``, a row of ``OPERATORS``."""

from pnpcm.names import Table
from pnpcm.operators.base import DecomposableOperator, LinearOperatorBase, OperatorBase
from pnpcm.operators.blur import Blur, gaussian_kernel, motion_kernel
from pnpcm.operators.compose import Compose
from pnpcm.operators.crop import Crop, canvas_for
from pnpcm.operators.function import FunctionOperator
from pnpcm.operators.gaussian_blur import GaussianBlur
from pnpcm.operators.inpainting import Inpainting
from pnpcm.operators.jpeg import JPEG
from pnpcm.operators.measure import measure
from pnpcm.operators.mri import MultiCoilMRI
from pnpcm.operators.nonlinear_blur import NonlinearBlur
from pnpcm.operators.phase_retrieval import PhaseRetrieval
from pnpcm.operators.superresolution import SuperResolution

OPERATORS: Table[type[OperatorBase]] = Table(
    "operator",
    {
        "inpainting": Inpainting,
        "superresolution": SuperResolution,
        "gaussian-blur": GaussianBlur,
        "blur": Blur,
        "mri": MultiCoilMRI,
        "jpeg": JPEG,
        "nonlinear-blur": NonlinearBlur,
        "phase-retrieval": PhaseRetrieval,
        "crop": Crop,
        "compose": Compose,
        "function": FunctionOperator,
    },
)

__all__ = [
    "JPEG",
    "OPERATORS",
    "Blur",
    "Compose",
    "Crop",
    "DecomposableOperator",
    "FunctionOperator",
    "GaussianBlur",
    "Inpainting",
    "LinearOperatorBase",
    "MultiCoilMRI",
    "NonlinearBlur",
    "OperatorBase",
    "PhaseRetrieval",
    "SuperResolution",
    "canvas_for",
    "gaussian_kernel",
    "measure",
    "motion_kernel",
]
