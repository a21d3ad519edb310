"""Check built pages: every link within them leads somewhere, and nothing is loaded from a network.

python tools/check_pages.py out/docs/html
"""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADING = {
    ("script", "src"),
    ("link", "href"),
    ("img", "src"),
    ("iframe", "src"),
    ("source", "src"),
}
"""Attributes whose files a browser loads by itself."""
CSS = re.compile(r"""(?:url\(|@import)\s*["']?(https?:)?//""")


class Page(HTMLParser):
    """The anchors of a page, its links, and the files that it loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value for name, value in attrs if value}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        for name, value in values.items():
            if (tag, name) in LOADING and values.get("rel") not in ("canonical", "license"):
                self.loaded.append(value)
            elif tag == "a" and name == "href":
                self.links.append(value)

    def has(self, anchor: str) -> bool:
        return anchor in ("", "top") or anchor in self.anchors


def findings(folder: Path) -> list[str]:
    """One line per bad link and per file of another host."""
    pages = {p.resolve(): Page(p.read_text(encoding="utf-8")) for p in folder.rglob("*.html")}
    found = []
    for path, page in pages.items():
        name = path.relative_to(folder.resolve())
        for value in page.loaded + page.links:
            parts = urlsplit(value)
            if parts.scheme or parts.netloc:
                if value in page.loaded and parts.scheme != "data":
                    found.append(f"{name} loads {value}")
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.exists():
                found.append(f"{name} refers to {value}, which does not exist")
            elif target in pages and not pages[target].has(unquote(parts.fragment)):
                found.append(f"{name} refers to {value}, a place that does not exist")
    for sheet in folder.rglob("*.css"):
        if CSS.search(sheet.read_text(encoding="utf-8")):
            found.append(f"{sheet.relative_to(folder)} loads a file of another host")
    return found


if __name__ == "__main__":
    lines = findings(Path(sys.argv[1]))
    print(
        "\n".join(lines) or "all links within the pages are valid; nothing is loaded from a network"
    )
    sys.exit(bool(lines))
