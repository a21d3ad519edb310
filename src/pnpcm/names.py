"""Names of operators, losses and tasks without importing torch, for ``pnpcm --help``."""

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
"""Rows of ``LOSSES``, the training methods of priors."""

TASK_NAMES = (
    "denoise",
    "inpaint",
    "superres",
    "deblur",
    "jpeg",
    "nonlinear-deblur",
    "phase-retrieval",
)
"""Rows of ``TASKS``, the tasks of ``pnpcm restore`` and ``simulate``."""
