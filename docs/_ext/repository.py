"""Pages that are files elsewhere in the repository, and links to such files.

A page of ``PAGES`` is a stub: its text is that of the file. A link to a file of the repository
leads to its page if it has one, to a listed page for the README, and else to a copy of the file.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

DOCS = Path(__file__).parents[1]
ROOT = DOCS.parent
PAGES = {
    "project/architecture": "ARCHITECTURE.md",
    "project/contributing": "CONTRIBUTING.md",
    "project/security": "SECURITY.md",
    "project/changelog": "CHANGELOG.md",
    "project/results": "benchmarks/RESULTS.md",
    "project/benchmarks": "benchmarks/README.md",
    "project/studies": "benchmarks/studies/README.md",
    "project/speed": "benchmarks/speed/README.md",
    "project/recipes": "recipes/README.md",
    "project/natural": "src/pnpcm/weights/natural.md",
    "project/mri": "src/pnpcm/weights/mri.md",
    "project/faces": "src/pnpcm/weights/faces.md",
    "project/credits": "src/pnpcm/data/CREDITS.md",
}
FOLDERS = {
    "benchmarks/specs": "benchmarks/README.md",
    "benchmarks/results": "benchmarks/README.md",
    "benchmarks": "benchmarks/README.md",
    "benchmarks/studies": "benchmarks/studies/README.md",
    "docs/methods": "docs/methods/README.md",
    "src/pnpcm/weights": "src/pnpcm/weights/natural.md",
}
"""Links to folders, which are not pages: the file that describes the folder."""
README = {"restore-an-image": "guide/photo.md", "train-your-own-prior": "guide/train.md"}
"""Sections of the README by page; all others lead to the first page."""
LINK = re.compile(r"(?<=\]\()([^)\s]+)(?=\))")
FILES = {file: f"{page}.md" for page, file in PAGES.items()}


def target(link: str, origin: Path) -> str:
    """``link`` of the file ``origin`` as a link of a page."""
    if re.match(r"[a-z]+:|#|/", link) or link.startswith("<"):
        return link
    path, _, anchor = link.partition("#")
    file = os.path.relpath((origin.parent / path).resolve(), ROOT)
    file = FOLDERS.get(file, file)
    if file == "README.md":
        return "/" + README.get(anchor, "index.md")
    hash_ = f"#{anchor}" if anchor else ""
    if file in FILES:
        return f"/{FILES[file]}{hash_}"
    if file.startswith("docs/"):
        return f"/{file.removeprefix('docs/')}{hash_}"
    return f"/{os.path.relpath(ROOT / file, DOCS)}"  # MyST copies the file


def read(app: Sphinx, page: str, source: list[str]) -> None:
    """The text of a page, its links led to other pages."""
    if page.startswith("gallery/") or not app.env.doc2path(page).name.endswith(".md"):
        return
    origin = ROOT / PAGES[page] if page in PAGES else DOCS / f"{page}.md"
    if page in PAGES:
        app.env.note_dependency(str(origin))
        source[0] = origin.read_text(encoding="utf-8")
    parts = re.split(r"(^```.*?^```$)", source[0], flags=re.MULTILINE | re.DOTALL)
    for i in range(0, len(parts), 2):
        parts[i] = LINK.sub(lambda m: target(m[1], origin), parts[i])
    source[0] = "".join(parts)


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("source-read", read)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
