"""Configuration of Sphinx: `make docs` builds out/docs/html, which loads nothing from a network."""

import os
import sys
from pathlib import Path

from sphinx_gallery.sorting import ExplicitOrder

HERE = Path(__file__).parent
ROOT = HERE.parent
sys.path.insert(0, str(HERE / "_ext"))
sys.path.insert(0, str(ROOT / "src"))
os.environ["PYTHONPATH"] = str(ROOT / "src")  # of processes that examples start

import pnpcm  # noqa: E402

project = "pnpcm"
author = "The pnpcm developers"
copyright = author
version = release = pnpcm.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
    "mathml",
    "repository",
]
exclude_patterns = ["_ext"]
html_theme = "furo"
html_title = f"pnpcm {release}"
html_static_path = ["_static"]
html_css_files = ["pnpcm.css"]
html_copy_source = False
html_math_renderer = "mathml"
pygments_style = "default"
templates_path: list[str] = []
nitpicky = False

myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 4
myst_dmath_double_inline = True

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_class_signature = "mixed"
autodoc_default_options = {"members": True, "show-inheritance": False}
copybutton_exclude = ".linenos, .gp, .go"

EXAMPLES = (
    *("photo", "algorithm", "inpainting", "deblurring", "jpeg", "mri", "own_operator"),
    *("own_prior", "methods", "steps", "samples"),
)
sphinx_gallery_conf = {
    "examples_dirs": [str(ROOT / "examples")],
    "gallery_dirs": ["gallery"],
    "filename_pattern": r"/plot_",
    "within_subsection_order": ExplicitOrder([f"plot_{name}.py" for name in EXAMPLES]),
    "abort_on_example_error": True,
    "download_all_examples": True,
    "show_signature": False,
    "show_memory": False,
    "remove_config_comments": True,
    "min_reported_time": 0,
    "image_scrapers": ("matplotlib",),
    "matplotlib_animations": False,
    "reference_url": {},
    "write_computation_times": False,  # its page loads scripts of other hosts
    "notebook_images": False,
}

linkcheck_timeout = 10
linkcheck_anchors = False
