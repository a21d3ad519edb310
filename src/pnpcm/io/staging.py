"""Hidden folders for files that are being written, each with a lock while its process lives.

A folder ``.pnpcm-`` and 16 hex digits belongs to a process as long as that process holds a lock on
it (``flock``), which the system releases when the process ends in any way. Process numbers say
nothing across containers and machines. Where there is no ``flock`` (Windows, some network file
systems) folders are used without a lock, two processes do not share work, and leftovers stay.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import secrets
import shutil
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pnpcm.errors import ArgumentError

try:
    import fcntl

    LOCKS = True
except ImportError:  # Windows
    LOCKS = False

NAME = re.compile(r"\.pnpcm-[0-9a-f]{16}")
NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)


@contextmanager
def staging(folder: Path) -> Iterator[Path]:
    """A new hidden folder in ``folder``, locked, and removed at the end with all that is in it."""
    while True:
        path = folder / f".pnpcm-{secrets.token_hex(8)}"
        with _held(path, wait=True) as held:
            if held:  # else another process removed it before it was locked
                yield path
                return


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """An error of the system while ``path`` is written names it, unless it names another file.

    Libraries report a full disk without the file, HDF5 only in words; a hidden folder says nothing
    to a user.
    """
    try:
        yield
    except RuntimeError as error:
        found = re.search(r"errno = (\d+)", str(error))
        if found is None:
            raise
        number = int(found[1])
        raise OSError(number, os.strerror(number), _seen(path)) from error
    except OSError as error:
        named = [name for name in (error.filename, error.filename2) if isinstance(name, str)]
        if named and not any(NAME.fullmatch(part) for name in named for part in Path(name).parts):
            raise
        number, what = error.errno or errno.EIO, error.strerror or str(error)
        raise OSError(number, what, _seen(path)) from error


def _seen(path: Path) -> str:
    """``path`` without hidden folders of ours."""
    return str(Path(*(part for part in path.parts if not NAME.fullmatch(part))))


@contextmanager
def claim(folder: Path, name: str, *, wait: bool = False) -> Iterator[bool]:
    """Whether this process has the result ``name`` in ``folder`` for itself, until the end.

    False if another process has it; ``wait=True`` waits until that has ended.
    """
    digits = hashlib.sha256(os.fsencode(name)).hexdigest()[:16]
    while True:
        with _held(folder / f".pnpcm-{digits}", wait=wait) as held:
            if held or not wait:
                yield held
                return


def remove_leftovers(folder: Path) -> None:
    """Delete the hidden folders of processes that have ended; those of running ones are kept.

    Only folders of this user whose whole name is of the pattern are taken for ours.
    """
    if not LOCKS:
        return
    for path in folder.glob(".pnpcm-*"):
        if NAME.fullmatch(path.name) and not path.is_symlink() and path.is_dir():
            try:
                if path.stat().st_uid == os.geteuid():
                    _remove_unlocked(path)
            except OSError:  # it has gone, or cannot be locked here
                continue


def remove(path: Path) -> None:
    """Delete a file or a folder, if it exists."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def publish(
    sources: Sequence[Path],
    folder: Path,
    *,
    stale: Sequence[str] = (),
    own: Collection[str] = (),
) -> list[Path]:
    """Rename files (or folders) of a staging folder into ``folder``, all or none; returns them.

    A folder that would lose files is not replaced but an error, before anything is changed, unless
    it is one of ``own``, the names of an older result. The last one marks the others as complete:
    its older version goes first, and it comes last. So do the files ``stale`` of an older result
    go. After an error all is as before; after a killed process the mark is missing.
    """
    targets = [folder / source.name for source in sources]
    pairs = list(zip(sources, targets, strict=True))
    for source, target in pairs:
        _check_loss(source, target, own)
    with writing(folder), staging(folder) as aside:
        try:
            for path in (targets[-1], *(folder / name for name in stale)):
                if os.path.lexists(path):
                    path.rename(aside / path.name)
            for source, target in pairs:
                if os.path.lexists(target):
                    _keep(target, aside / target.name)
                os.replace(source, target)
        except BaseException:
            for source, target in pairs:
                if not source.exists():
                    remove(target)
            for path in aside.iterdir():
                path.replace(folder / path.name)
            raise
    return targets


def _check_loss(source: Path, target: Path, own: Collection[str]) -> None:
    """Refuse to replace a folder by a file, or by a folder without some of its files."""
    if target.is_symlink() or not target.is_dir():
        return
    if source.is_dir():
        others = {path.name for path in target.iterdir()} - {path.name for path in source.iterdir()}
        if target.name in own or not others:
            return
    what = "a folder with other files" if source.is_dir() else "a folder"
    raise ArgumentError(
        f"output {target} cannot be written, since it is {what}; rename it, or give another folder "
        "(--out)"
    )


def _keep(path: Path, copy: Path) -> None:
    """Make ``copy`` a second name of a file, so that readers always find one; move a folder."""
    try:
        os.link(path, copy, follow_symlinks=False)
    except OSError:  # a folder, or a file system without links
        path.rename(copy)


@contextmanager
def _held(path: Path, *, wait: bool) -> Iterator[bool]:
    """Whether this process now has the folder ``path``, which is removed at the end, for itself.

    False: another process has it, or (with ``wait``) removed it meanwhile.
    """
    try:
        path.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:  # the name of a hidden folder says nothing to a user
        raise OSError(error.errno, error.strerror, str(path.parent)) from error
    handle = _open(path) if LOCKS else None
    held = not LOCKS
    try:
        if handle is not None:
            held = _lock(handle, wait=wait) and _is_at(handle, path)
        yield held
    finally:
        if held:
            shutil.rmtree(path, ignore_errors=True)
        if handle is not None:
            os.close(handle)  # releases the lock


def _open(path: Path) -> int | None:
    """A handle of a folder; None if another process has removed it."""
    try:
        return os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return None


def _lock(handle: int, *, wait: bool) -> bool:
    """Lock a folder; False if another process has it."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
    return True


def _is_at(handle: int, path: Path) -> bool:
    """Whether the open folder is the one that now has this name."""
    try:
        there = path.stat()
    except FileNotFoundError:
        return False
    here = os.fstat(handle)
    return (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino)


def _remove_unlocked(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(path, ignore_errors=True)
    finally:
        os.close(handle)
