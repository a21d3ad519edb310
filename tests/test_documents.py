"""Documents cite nothing outside of the repository, and their links are valid."""

import re
import subprocess
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
OUTSIDE = re.compile(
    r"(?<![\w/-])(reference|baselines|style|api|denoisers)\.md\b"
    r"|shared/(data|design)|\b(the|fact) sheet\b"
)
"""Documents and folders that a reader of the repository does not have."""
ALLOWED = {"src/pnpcm/places.py", "Makefile", "tests/test_documents.py"}
"""Where the default of PNPCM_DATA is stated, and this file."""
LINK = re.compile(r"\]\(([^)\s]+)\)")


@cache
def tracked() -> dict[str, str]:
    """Text files under version control, by path; skips where there is no repository."""
    try:
        done = subprocess.run(
            ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this is not a git repository, so the list of its files is unknown")
    found = {}
    for name in filter(None, done.stdout.split("\0")):
        try:
            found[name] = (ROOT / name).read_text(encoding="utf-8")
        except (UnicodeDecodeError, FileNotFoundError):  # pictures, weights; deleted in the tree
            continue
    return found


def test_no_file_cites_what_is_outside_of_the_repository() -> None:
    texts = tracked()
    assert len(texts) > 200
    cited = [
        f"{name}:{number}: {line.strip()[:80]}"
        for name, text in texts.items()
        if name not in ALLOWED
        for number, line in enumerate(text.splitlines(), start=1)
        if OUTSIDE.search(line)
    ]
    assert not cited, "\n".join(cited)


@pytest.mark.parametrize(
    "line",
    ["see reference.md §3", "(baselines.md)", "../shared/data/faces", "the sheet's row"],
)
def test_citations_are_seen(line: str) -> None:
    assert OUTSIDE.search(line)


def headings(text: str) -> set[str]:
    """Anchors of a page, by GitHub's rule: words and hyphens stay, blanks become hyphens."""
    found = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in found}


def test_links_of_the_documents_lead_somewhere() -> None:
    pages = {  # results/*.md are parts of benchmarks/RESULTS.md
        name: text
        for name, text in tracked().items()
        if name.endswith(".md") and not name.startswith("benchmarks/results/")
    }
    assert {"README.md", "docs/usage.md", "docs/methods/README.md"} <= set(pages)
    for name, text in pages.items():
        for target in LINK.findall(text):
            if target.startswith(("http://", "https://")):
                continue
            path, _, anchor = target.partition("#")
            page = (ROOT / name).parent / path if path else ROOT / name
            assert page.exists(), f"{name} links to {target}"
            if anchor:
                assert anchor in headings(page.read_text(encoding="utf-8")), f"{name}: #{anchor}"


SCRIPT = re.compile(r"(?<![\w/])(?:benchmarks|recipes|tests|tools)/[\w./-]+\.(?:py|yaml)\b")


def test_files_that_the_source_names_exist() -> None:
    named = {
        (name, path)
        for name, text in tracked().items()
        if name.startswith("src/")
        for path in SCRIPT.findall(text)
    }
    assert len(named) >= 5
    assert {(name, path) for name, path in named if not (ROOT / path).exists()} == set()


SECTION = re.compile(r"docs/(method\.md|methods/[\w-]+\.md)((?:(?: and)? §[\d.]*\d)*)")


def test_sections_that_are_cited_exist() -> None:
    """``docs/method.md §12.2``: the page has a heading or a paragraph with that number."""
    cited = 0
    for name, text in tracked().items():
        if not name.endswith(".py"):
            continue
        for page, numbers in SECTION.findall(text):
            document = ROOT / "docs" / page
            assert document.is_file(), f"{name} cites docs/{page}"
            for number in re.findall(r"§([\d.]*\d)", numbers):
                start = rf"^(#+ |\*\*){re.escape(number)} "
                found = re.search(start, document.read_text(encoding="utf-8"), re.MULTILINE)
                assert found, f"{name} cites docs/{page} §{number}"
                cited += 1
    assert cited > 10


def test_every_page_is_in_a_table_of_contents() -> None:
    """`make docs` fails otherwise."""
    docs = ROOT / "docs"
    tables = re.findall(r"```\{toctree\}(.*?)```", (docs / "index.md").read_text(), re.DOTALL)
    entries = [line for table in tables for line in table.split() if not line.startswith(":")]
    pages = {str(p.relative_to(docs).with_suffix("")) for p in docs.rglob("*.md")}
    listed = {page for page in pages if any(fnmatch(page, entry) for entry in entries)}
    generated = {page for page in pages if page.startswith(("gallery/", "api/"))}
    assert pages - listed - generated == {"index"}
