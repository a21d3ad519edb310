"""Names known without loading torch, for ``pnpcm --help``. Tests keep them equal to the tables."""

OPERATOR_NAMES = (
    "inpainting",
    "superresolution",
    "gaussian-blur",
    "blur",
    "mri",
    "jpeg",
    "nonlinear-blur",
    "phase-retrieval",
    "crop",
    "compose",
    "function",
)

METHOD_NAMES = ("edm", "distill", "consistency", "ect", "cosign")
"""Rows of ``LOSSES``, the ways to train a prior."""

TASK_NAMES = (
    "denoise",
    "inpaint",
    "superres",
    "deblur",
    "jpeg",
    "nonlinear-deblur",
    "phase-retrieval",
)
"""Rows of ``TASKS``, what ``pnpcm restore`` and ``simulate`` can do."""
