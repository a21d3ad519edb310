"""Formulas as MathML, which browsers render without scripts or fonts of other hosts."""

from __future__ import annotations

from html import escape
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.util.math import get_node_equation_number


def mathml(latex: str, display: str) -> str:
    """``latex`` as one <math> element; rows of ``\\\\`` with ``&`` are aligned."""
    latex = latex.strip().replace(r"\_", "_")
    bare = r"\begin" not in latex
    if bare and r"\\" in latex:
        latex = rf"\begin{{aligned}}{latex}\end{{aligned}}"
    return str(convert(latex, display=display))


def inline(self: Any, node: nodes.math) -> None:
    self.body.append(mathml(node.astext(), "inline"))
    raise nodes.SkipNode


def block(self: Any, node: nodes.math_block) -> None:
    self.body.append(self.starttag(node, "div", CLASS="math-block"))
    if node["number"]:
        number = get_node_equation_number(self, node)
        self.body.append(f'<span class="eqno">({escape(number)})</span>')
    self.body.append(mathml(node.astext(), "block") + "</div>\n")
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_html_math_renderer("mathml", (inline, None), (block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
