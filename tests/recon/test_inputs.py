"""Input files in folders, outputs of earlier runs among them, and names of outputs."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from pnpcm.errors import ArgumentError
from pnpcm.recon.inputs import Input, find_inputs, photo_targets
from pnpcm.training.sources import Folder

SUFFIXES = (".png", ".jpg", ".npz")


def touch(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"")


def found(folder: Path, *, recursive: bool = False) -> list[str]:
    inputs, _ = find_inputs([folder], SUFFIXES, recursive=recursive)
    assert [i.path for i in inputs] == [folder / i.below / i.path.name for i in inputs]
    return [str(i.path.relative_to(folder)) for i in inputs]


def test_hidden_and_other_files_are_left_out(tmp_path: Path) -> None:
    touch(tmp_path, "b.PNG", "a.jpg", ".c.png", "notes.txt", "sub/d.png", ".cache/e.png")
    assert found(tmp_path) == ["a.jpg", "b.PNG"]
    assert found(tmp_path, recursive=True) == ["a.jpg", "b.PNG", "sub/d.png"]


def test_masks_are_not_inputs(tmp_path: Path) -> None:
    touch(tmp_path, "a.png", "masks/a.png", "mask.png")
    for mask, rest in (("masks", ["a.png", "mask.png"]), ("mask.png", ["a.png", "masks/a.png"])):
        inputs, _ = find_inputs([tmp_path], SUFFIXES, recursive=True, mask=tmp_path / mask)
        assert [str(i.path.relative_to(tmp_path)) for i in inputs] == rest


def write_record(folder: Path, name: str, source: str, files: list[str]) -> None:
    touch(folder, *files)
    content = json.dumps({"input": source, "files": files})
    (folder / f"{name}.result.json").write_text(content)


def test_outputs_of_earlier_runs_are_left_out(tmp_path: Path) -> None:
    touch(tmp_path, "a.png")
    write_record(
        tmp_path, "a.denoise", "x/a.png", ["a.denoise.png", "a.denoise.std.png", "a.compare.png"]
    )
    assert found(tmp_path) == ["a.png"]
    write_record(tmp_path / "out", "a.deblur", "a.png", ["a.deblur.png"])
    assert found(tmp_path, recursive=True) == ["a.png"]
    # a folder of results alone: each is an input of the next task, what is beside it is not
    (tmp_path / "a.png").unlink()
    assert found(tmp_path) == ["a.denoise.png"]
    # a result that has the name of its input
    write_record(tmp_path / "same", "b", "in/b.png", ["b.png"])
    assert found(tmp_path / "same") == ["b.png"]
    touch(tmp_path / "measured", "c.npz", "c.png")
    assert found(tmp_path / "measured") == ["c.npz"]  # c.png shows y


def test_files_that_are_named_are_taken(tmp_path: Path) -> None:
    touch(tmp_path, "a.png")
    write_record(tmp_path, "a.denoise", "a.png", ["a.denoise.png"])
    paths = [tmp_path / "a.denoise.png", tmp_path / "a.png", tmp_path]
    inputs, skipped = find_inputs(paths, SUFFIXES)
    assert [i.path for i in inputs] == paths[:2]  # each once
    assert skipped == []


def test_pictures_that_cannot_be_read_are_reported(tmp_path: Path) -> None:
    touch(tmp_path, "a.png", "b.gif", "c.NEF", "sub/d.heic")
    _, skipped = find_inputs([tmp_path], SUFFIXES)
    assert [(one.input.name, one.status) for one in skipped] == [
        ("b.gif", "skipped"),
        ("c.NEF", "skipped"),
    ]
    with pytest.raises(ArgumentError, match=r"without images .*d.heic is a HEIC file") as caught:
        find_inputs([tmp_path / "sub"], SUFFIXES)
    assert "\n" not in str(caught.value)
    touch(tmp_path, "deep/er/e.png")
    with pytest.raises(ArgumentError, match="with subfolders; --recursive"):
        find_inputs([tmp_path / "deep"], SUFFIXES, recursive=False)


def test_an_empty_folder_and_subfolders_name_the_next_move(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    words = (
        r"without images \(\.png, \.jpg, \.npz\); check the path, or give files of these formats$"
    )
    with pytest.raises(ArgumentError, match=words):
        find_inputs([tmp_path / "empty"], SUFFIXES)
    touch(tmp_path, "sub/a.png")
    for recursive, words in (
        (False, "; --recursive takes the images in them$"),
        (None, "; give these"),
    ):
        with pytest.raises(ArgumentError, match=f"but with subfolders{words}"):
            find_inputs([tmp_path], SUFFIXES, recursive=recursive)


def test_a_folder_of_images_in_place_of_scans_is_sent_to_restore(tmp_path: Path) -> None:
    for name in ("a.png", "b.gif"):
        folder = tmp_path / f"in {name}"
        touch(folder, name)
        with pytest.raises(ArgumentError, match=r"without raw scans \(\.h5\)") as caught:
            find_inputs([folder], (".h5",), what="raw scans", results=False)
        said = str(caught.value)
        assert f"it holds images ({name}), " in said
        assert said.endswith(f"restore them with pnpcm restore '{folder}' --task denoise")
    write_record(tmp_path / "out", "head.scan", "head.h5", ["head.scan.png"])
    with pytest.raises(ArgumentError, match=r"without raw scans \(\.h5\); check the path"):
        find_inputs([tmp_path / "out"], (".h5",), what="raw scans", results=False)


def test_names_have_the_task_and_the_subfolder() -> None:
    inputs = [Input(Path("in/a.jpg")), Input(Path("in/s/a.tif"), Path("s"))]
    targets = photo_targets(inputs, ["jpeg", "denoise"], Path("out"))
    assert targets == [Path("out/a.jpeg.png"), Path("out/s/a.denoise.tif")]
    targets = photo_targets(inputs, ["jpeg", "denoise"], Path("out"), "webp")
    assert targets == [Path("out/a.jpeg.webp"), Path("out/s/a.denoise.webp")]


def test_equal_names_get_their_suffix_or_folder() -> None:
    inputs = [Input(Path(name)) for name in ("x/a.png", "x/a.jpg", "y/a.png", "x/b.png")]
    names = [p.name for p in photo_targets(inputs, ["t"] * 4, Path("out"))]
    assert names == ["x_a_png.t.png", "a_jpg.t.png", "y_a_png.t.png", "b.t.png"]
    with pytest.raises(ArgumentError, match="same output name"):
        photo_targets([Input(Path("p/x/a.png")), Input(Path("q/x/a.png"))], ["t"] * 2, Path("o"))


def test_an_input_is_never_an_output(tmp_path: Path) -> None:
    inputs = [Input(tmp_path / "a.png"), Input(tmp_path / "a.t.png")]
    with pytest.raises(ArgumentError, match="is an input"):
        photo_targets(inputs, ["t", "t"], tmp_path)
    touch(tmp_path, "file")
    with pytest.raises(ArgumentError, match="a file that exists"):
        photo_targets(inputs[:1], ["t"], tmp_path / "file")
    (tmp_path / "folder.png").mkdir()
    targets = photo_targets(inputs[:1], ["t"], tmp_path / "folder.png")
    assert targets == [tmp_path / "folder.png" / "a.t.png"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="has no pipes")
def test_only_regular_files_of_a_folder_are_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pipe never ends, and a link to /dev/zero would fill the memory."""
    touch(tmp_path, "a.png", "b.png")
    write_record(tmp_path, "a.denoise", "a.png", ["a.denoise.png"])
    endings = ("png", "npz", "denoise.result.json")
    for ending in endings:
        os.mkfifo(tmp_path / f"pipe.{ending}")
        (tmp_path / f"zero.{ending}").symlink_to("/dev/zero")
    (tmp_path / "link.png").symlink_to(tmp_path / "b.png")
    opened = []
    whole = Path.read_text

    def noted(path: Path, *arguments: Any, **options: Any) -> str:
        opened.append(path.name)
        return whole(path, *arguments, **options)

    monkeypatch.setattr(Path, "read_text", noted)
    assert found(tmp_path) == ["a.png", "b.png", "link.png"]
    assert opened == ["a.denoise.result.json"]
    names = [p.name for p in Folder(tmp_path).paths]  # of a training
    assert sorted(names) == ["a.denoise.png", "a.png", "b.png", "link.png"]
