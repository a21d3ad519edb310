"""Priors in the layout of the Hugging Face Hub: a folder with three files.

``model.safetensors`` is the prior with all its metadata; ``config.json`` repeats its header (the
Hub counts downloads by it), and ``README.md`` is the model card below the front matter that the Hub
indexes. Only downloading needs ``huggingface_hub``.

A repository is written ``hf:owner/name`` or ``hf:owner/name@revision``, so that a mistyped path is
never downloaded. :func:`pinned` replaces a missing or moving revision by the hash of its commit.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pnpcm import __version__
from pnpcm.errors import ArgumentError, CheckpointError, MissingExtraError
from pnpcm.io.files import write_atomically, write_json, write_text
from pnpcm.io.reading import read_json
from pnpcm.io.staging import staging
from pnpcm.priors.checkpoint import read_header

WEIGHTS, CONFIG, README = "model.safetensors", "config.json", "README.md"
LICENCES = (
    *("apache-2.0", "mit", "bsd-2-clause", "bsd-3-clause", "gpl-3.0", "lgpl-3.0", "agpl-3.0"),
    *("mpl-2.0", "cc0-1.0", "cc-by-4.0", "cc-by-sa-3.0", "cc-by-sa-4.0", "cc-by-nc-4.0"),
    *("cc-by-nc-sa-4.0", "cc-by-nc-nd-4.0", "openrail", "unlicense", "unknown"),
)
"""Licence identifiers of the Hub; any other is "other" with a name."""
PREFIX = "hf:"
_ID = re.compile(r"hf:(?P<name>[\w-][\w.-]*/[\w-][\w.-]*)(?:@(?P<revision>[\w./-]+))?")
_COMMIT = re.compile(r"[0-9a-f]{40}")


def export_folder(
    file: Path, folder: Path, *, card: str | None = None, force: bool = False
) -> None:
    """Write the prior ``file`` as ``folder``, atomically.

    ``card=None``: a card made of the header. An existing folder that is not empty is refused;
    ``force`` replaces the three files in it, each atomically, and keeps all others (e.g. ``.git``).
    """
    header = read_header(file)
    card = card or plain_card(header)
    if folder.exists() and not folder.is_dir():
        raise ArgumentError(f"folder is {folder}, which is a file; choose another name")
    if folder.is_dir() and any(folder.iterdir()):
        if not force:
            raise ArgumentError(
                f"folder is {folder}, which exists and is not empty; choose another, or give "
                "--force to replace the exported files in it"
            )
        _write(file, folder, header, card)
        return
    if not folder.parent.is_dir():
        raise ArgumentError(f"folder is {folder}, but {folder.parent} is not a folder; create it")
    with staging(folder.parent) as inside:
        temporary = inside / folder.name
        temporary.mkdir()
        _write(file, temporary, header, card)
        temporary.replace(folder)


def is_hub_id(name: str | Path) -> bool:
    """Whether ``name`` begins with ``hf:``."""
    return str(name).startswith(PREFIX)


def pinned(hub_id: str) -> str:
    """``hf:owner/name@commit`` of a Hub id with or without a revision, asked of the Hub once."""
    name, revision = _parse(hub_id)
    if revision is None or not _COMMIT.fullmatch(revision):
        revision = download(hub_id, [CONFIG]).name  # a snapshot's folder is named by its commit
    if not _COMMIT.fullmatch(revision):
        raise CheckpointError(
            f"{hub_id} has no commit in the cache of the Hub ({revision}); give the hash of a "
            f"commit: {PREFIX}{name}@…"
        )
    return f"{PREFIX}{name}@{revision}"


def own_file(folder_or_hub_id: str | Path) -> Path | None:
    """The prior file in a folder or a repository of the Hub; None if it is not in pnpcm's format.

    The weights of a repository are downloaded only if its ``config.json`` is pnpcm's.
    """
    folder = Path(folder_or_hub_id)
    if is_hub_id(folder_or_hub_id):
        if not _is_own(download(str(folder_or_hub_id), [CONFIG])):
            return None
        folder = download(str(folder_or_hub_id), [CONFIG, WEIGHTS, README])
    if not _is_own(folder):
        return None
    header, config = read_header(folder / WEIGHTS), _config(folder)
    for key in ("kind", "network", "options"):
        if header.get(key) != config.get(key):
            raise CheckpointError(
                f"{folder / CONFIG} and its {WEIGHTS} differ in {key!r}; "
                "export the weights file again"
            )
    return folder / WEIGHTS


def model_readme(header: dict[str, Any], card: str) -> str:
    """The card below YAML front matter; strings are quoted as in JSON, which YAML contains."""
    info = header.get("info", {})
    licence = str(info.get("licence", "unknown"))
    word = licence.split(maxsplit=1)[0].lower() if licence.split() else "unknown"
    kind = "consistency-model" if header["kind"] == "consistency" else "diffusion"
    lines = ["---", f"license: {word if word in LICENCES else 'other'}"]
    if word not in LICENCES:
        lines.append(f"license_name: {json.dumps(licence, ensure_ascii=False)}")
    lines += ["library_name: pnpcm", "pipeline_tag: image-to-image", "tags:"]
    lines += [f"- {tag}" for tag in ("pnpcm", "inverse-problems", "image-reconstruction", kind)]
    text = re.sub(r"\A---\n.*?\n---\n", "", card, flags=re.DOTALL)  # of an earlier export
    return "\n".join([*lines, "---", "", text.strip(), ""])


def plain_card(header: dict[str, Any]) -> str:
    """A card for a prior without one: its header, and how to load it."""
    info = header.get("info", {})
    lines = [f"# {info.get('name', 'A prior for pnpcm')}", "", f"- **kind**: {header['kind']}"]
    for key, value in info.items():
        if key != "name":
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            lines.append(f"- **{key.replace('_', ' ')}**: {text}")
    use = ["## Use", "", "```python", "import pnpcm", "", 'prior = pnpcm.load_prior("FOLDER")']
    return "\n".join([*lines, "", *use, "```", ""])


def _write(file: Path, folder: Path, header: dict[str, Any], card: str) -> None:
    write_atomically(folder / WEIGHTS, lambda temporary: _copy(file, temporary))
    write_json(folder / CONFIG, {"pnpcm": __version__} | header)
    write_text(folder / README, model_readme(header, card))


def _copy(source: Path, target: Path) -> None:
    shutil.copyfile(source, target)  # not its mode: safetensors files are readable by owner only


def _is_own(folder: Path) -> bool:
    return "pnpcm" in _config(folder)


def _config(folder: Path) -> dict[str, Any]:
    """``config.json``; empty if it cannot be read (diffusers' reader then reports it)."""
    try:
        return read_json(folder / CONFIG, "a configuration")
    except ArgumentError:
        return {}


def download(hub_id: str, patterns: Sequence[str]) -> Path:
    """The local copy of files of a repository, downloaded and cached by huggingface_hub."""
    name, revision = _parse(hub_id)
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise MissingExtraError(
            f'{hub_id} is on the Hub; for the Hub run pip install "pnpcm[hf]"'
        ) from error
    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=list(patterns)))
    except Exception as error:  # no connection, no such repository, no permission, …
        raise CheckpointError(
            f"{hub_id} cannot be downloaded from the Hub ({error}); download it elsewhere and give "
            "the folder"
        ) from error


def _parse(hub_id: str) -> tuple[str, str | None]:
    """Repository and revision."""
    found = _ID.fullmatch(hub_id)
    if found is None:
        raise ArgumentError(
            f"{hub_id!r} is not a Hub id; expected hf:owner/name or hf:owner/name@revision"
        )
    return found["name"], found["revision"]
