"""The catalogue: names, damaged files, and folders for the Hub that are read back."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from golden import TINY, random_unet
from pnpcm import ConsistencyModel, DenoiserPrior, DiffusionModel, catalogue, load_prior, save_prior
from pnpcm.errors import ArgumentError, CheckpointError, MissingExtraError, UnknownNameError
from pnpcm.interop import hub
from pnpcm.networks import UNetConfig
from pnpcm.networks.kair import DenoiserConfig, build_denoiser
from pnpcm.priors.checkpoint import NetPrior, export_openai, load_own
from pnpcm.recon.plan import Priors

COMMIT = "0123456789abcdef0123456789abcdef01234567"
INFO = {"name": "tiny", "licence": "CC-BY-4.0", "training": [{"minutes": 3}, {"minutes": 4.5}]}


def consistency(seed: int = 0) -> NetPrior:
    return ConsistencyModel(random_unet(TINY, seed))


def edm(seed: int = 1) -> NetPrior:
    return DiffusionModel(random_unet(TINY, seed), kind="edm")


def same(a: Any, b: Any) -> bool:
    """The same weights and, up to rounding (which depends on their alignment), the same output."""
    x = torch.randn((1, 3, 10, 12), generator=torch.Generator().manual_seed(2))
    pairs = zip(a.parameters(), b.parameters(), strict=True)
    return torch.allclose(a(x, 0.4), b(x, 0.4), atol=1e-5) and all(
        torch.equal(p, q) for p, q in pairs
    )


@pytest.fixture
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The package's folder: "natural" as teacher and consistency model, with a card."""
    folder = tmp_path / "weights"
    folder.mkdir()
    monkeypatch.setattr(catalogue, "SHIPPED", folder)
    monkeypatch.setenv("PNPCM_HOME", str(tmp_path / "home"))
    save_prior(consistency(), folder / "natural-cm.safetensors", info=INFO)
    save_prior(edm(), folder / "natural-edm.safetensors")
    (folder / "natural.md").write_text("# natural\n\nA card.\n")
    return folder


@pytest.fixture
def cached(shipped: Path, tmp_path: Path) -> Path:
    """The user's folder: "mine", a denoiser whose file name does not contain its kind."""
    folder = tmp_path / "home" / "priors"
    folder.mkdir(parents=True)
    save_prior(edm(5), folder / "mine.safetensors")
    return folder


def test_an_empty_catalogue_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue, "SHIPPED", tmp_path / "nowhere")
    monkeypatch.setenv("PNPCM_HOME", str(tmp_path / "none"))
    assert catalogue.entries() == ()
    with pytest.raises(UnknownNameError, match="unknown prior 'natural'; known: gaussian"):
        load_prior("natural")
    monkeypatch.delenv("PNPCM_HOME")
    assert catalogue.cache_folder() == Path.home() / ".cache" / "pnpcm" / "priors"


def test_entries_say_what_the_header_says(shipped: Path, cached: Path) -> None:
    cm, teacher, mine = catalogue.entries()
    assert (cm.name, cm.kind, cm.shipped, cm.damage) == ("natural", "consistency", True, None)
    assert (teacher.name, teacher.kind) == ("natural", "edm")
    assert (mine.name, mine.kind, mine.shipped) == ("mine", "edm", False)
    assert cm.parameters == sum(p.numel() for p in consistency().parameters())
    assert cm.bytes == (shipped / "natural-cm.safetensors").stat().st_size > 4 * cm.parameters
    assert (cm.config, cm.image_size, cm.minutes) == (TINY, None, 7.5)
    assert cm.info["licence"] == "CC-BY-4.0"
    assert cm.card == teacher.card == shipped / "natural.md"
    assert (mine.card, mine.minutes) == (None, None)
    assert catalogue.names() == ("natural", "mine")


def test_odd_words_about_training_do_no_harm(cached: Path) -> None:
    for words in ("long", [3], [{"minutes": "many"}], {}):
        save_prior(edm(), cached / "odd.safetensors", info={"training": words})
        assert catalogue.find("odd").minutes is None


def test_find_prefers_the_consistency_model(shipped: Path, cached: Path) -> None:
    assert catalogue.find("natural").kind == "consistency"
    assert catalogue.find("natural", "edm").path.name == "natural-edm.safetensors"
    assert catalogue.find("mine").kind == "edm"
    assert catalogue.kinds("natural") == ("consistency", "edm")
    with pytest.raises(ArgumentError, match=r"kind is 'vp'.*has the kinds consistency, edm"):
        catalogue.find("natural", "vp")
    with pytest.raises(ArgumentError, match="kind must be one of consistency, edm, vp"):
        catalogue.find("natural", "gan")
    with pytest.raises(UnknownNameError, match="did you mean 'natural'"):
        catalogue.find("naturl")


def test_load_prior_knows_the_names(shipped: Path, cached: Path) -> None:
    assert same(load_prior("natural"), load_own(shipped / "natural-cm.safetensors"))
    teacher = load_prior("natural", kind="edm")
    assert isinstance(teacher, DiffusionModel)
    assert isinstance(load_prior("mine"), DiffusionModel)
    assert load_prior("gaussian").kind == "consistency"  # type: ignore[attr-defined]
    with pytest.raises(UnknownNameError, match="known: gaussian, mine, natural"):
        load_prior("xyz")
    with pytest.raises(UnknownNameError, match="did you mean 'natural'"):
        load_prior("natura")
    with pytest.raises(ArgumentError, match="has the kinds edm"):
        load_prior("mine", kind="consistency")
    with pytest.raises(ArgumentError, match="leave network out"):
        load_prior("natural", network={"image_size": 64})


@pytest.mark.parametrize("c_noise", ["openai", "edm"])
@pytest.mark.parametrize("kind", ["consistency", "edm"])
def test_save_prior_and_load_prior_are_inverse(kind: str, c_noise: str, tmp_path: Path) -> None:
    network = random_unet(TINY)
    prior = (
        ConsistencyModel(network, c_noise=c_noise, sigma_max=20.0)
        if kind == "consistency"
        else DiffusionModel(network, c_noise=c_noise, sigma_max=20.0)
    )
    path = tmp_path / "p.safetensors"
    save_prior(prior, path, info=INFO)
    back: Any = load_prior(path)
    assert same(back, prior)
    assert (back.kind, back.c_noise, back.sigma_max, back.info) == (kind, c_noise, 20.0, INFO)
    assert same(load_prior(path, kind=kind, c_noise=c_noise), prior)
    other = "edm" if c_noise == "openai" else "openai"
    with pytest.raises(ArgumentError, match=f"c_noise is '{other}', but .* holds .*'{c_noise}'"):
        load_prior(path, c_noise=other)
    hub.export_folder(path, tmp_path / "folder")
    from_folder: Any = load_prior(tmp_path / "folder", c_noise=c_noise)
    assert from_folder.c_noise == c_noise


def test_c_noise_reaches_pt_files_and_is_refused_elsewhere(shipped: Path, tmp_path: Path) -> None:
    export_openai(edm(), tmp_path / "edm_x.pt")
    for c_noise in ("openai", "edm"):
        prior: Any = load_prior(tmp_path / "edm_x.pt", c_noise=c_noise)
        assert (prior.kind, prior.c_noise) == ("edm", c_noise)
    x = torch.zeros(1, 3, 8, 8)
    openai, nvlabs = (load_prior(tmp_path / "edm_x.pt", c_noise=c) for c in ("openai", "edm"))
    assert not torch.allclose(openai(x, 0.4), nvlabs(x, 0.4), atol=1e-3)
    assert torch.equal(load_prior(tmp_path / "edm_x.pt")(x, 0.4), openai(x, 0.4))
    with pytest.raises(ArgumentError, match=r"c_noise is 'edm', but .*leave c_noise out"):
        load_prior("natural", c_noise="edm")
    with pytest.raises(ArgumentError, match="leave c_noise out"):
        load_prior("gaussian", c_noise="edm")
    with pytest.raises(ArgumentError, match="leave sigma_max out"):
        load_prior(tmp_path / "edm_x.pt", sigma_max=1.0)


def test_denoisers_in_our_format_have_names(cached: Path) -> None:
    network = build_denoiser(DenoiserConfig("dncnn", 1, (4,), 3))
    save_prior(DenoiserPrior(network, sigma_max=0.2), cached / "plain-edm.safetensors")
    entry = catalogue.find("plain")
    assert (entry.kind, entry.damage, entry.image_size) == ("edm", None, None)
    assert entry.config == network.config
    assert entry.parameters == 1 * 4 * 9 + 4 + 4 * 4 * 9 + 4 + 4 * 1 * 9 + 1
    prior = load_prior("plain")
    assert isinstance(prior, DenoiserPrior)
    assert prior.sigma_max == 0.2


def test_a_name_wins_over_a_local_file_and_a_path_does_not_lose(
    shipped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = tmp_path / "work"
    hub_folder = work / "natural"
    work.mkdir()
    hub.export_folder(shipped / "natural-edm.safetensors", hub_folder)
    monkeypatch.chdir(work)
    assert load_prior("natural").kind == "consistency"  # type: ignore[attr-defined]
    assert load_prior("./natural").kind == "edm"  # type: ignore[attr-defined]
    assert load_prior(Path("natural")).kind == "edm"  # type: ignore[attr-defined]
    assert catalogue.locate("natural").kind == "consistency"
    assert catalogue.locate("./natural").kind == "edm"


def test_shipped_files_win_over_cached_ones_of_the_same_kind(shipped: Path, cached: Path) -> None:
    save_prior(consistency(9), cached / "natural-cm.safetensors")
    save_prior(DiffusionModel(random_unet(TINY), kind="vp"), cached / "natural-vp.safetensors")
    assert catalogue.find("natural").shipped
    assert catalogue.kinds("natural") == ("consistency", "edm", "vp")
    assert not catalogue.find("natural", "vp").shipped
    assert len([e for e in catalogue.entries() if e.name == "natural"]) == 4


def test_damaged_files_are_listed_and_refused(shipped: Path, cached: Path) -> None:
    good = (cached / "mine.safetensors").read_bytes()
    (cached / "cut-cm.safetensors").write_bytes(good[:-100])
    (cached / "empty.safetensors").write_bytes(b"")
    (cached / "page.safetensors").write_text("<html>404</html>")
    (cached / "wrong-cm.safetensors").write_bytes(good)
    (cached / "nowhere.safetensors").symlink_to(cached / "gone")
    (cached / "folder.safetensors").mkdir()
    (cached / ".0123.half-cm.safetensors").write_bytes(good[:50])
    torch.save({}, cached / "pickle.safetensors")
    damaged = {e.name: e for e in catalogue.entries() if e.damage}
    assert set(damaged) == {"cut", "empty", "page", "wrong", "nowhere", "folder", "pickle"}
    assert damaged["cut"].kind == "consistency"
    assert damaged["empty"].kind is None
    assert "named as 'consistency', but holds kind 'edm'" in str(damaged["wrong"].damage)
    for name, entry in damaged.items():
        assert str(cached) in str(entry.damage)
        assert (entry.minutes, entry.image_size, entry.config) == (None, None, None)
        assert entry.bytes >= 0
        with pytest.raises(CheckpointError, match=name):
            load_prior(name)
    assert load_prior("mine").kind == "edm"  # type: ignore[attr-defined]


def test_a_damaged_consistency_model_is_not_replaced_by_its_teacher(cached: Path) -> None:
    save_prior(edm(), cached / "x-edm.safetensors")
    (cached / "x-cm.safetensors").write_bytes(b"junk")
    with pytest.raises(CheckpointError, match=r"x-cm\.safetensors is damaged"):
        load_prior("x")
    assert load_prior("x", kind="edm").kind == "edm"  # type: ignore[attr-defined]


def test_headers_that_make_no_sense_are_damage(cached: Path) -> None:
    from safetensors.torch import save_file

    weights = {"a": torch.zeros(1)}
    headers: dict[str, Any] = {
        "kind": {"format": 1, "kind": "gan", "network": {}, "options": {}, "info": {}},
        "network": {"format": 1, "kind": "edm", "network": 3, "options": {}, "info": {}},
        "info": {"format": 1, "kind": "edm", "network": {}, "options": {}, "info": 7},
        "short": {"format": 1},
        "list": [1],
    }
    for name, header in headers.items():
        path = cached / f"bad-{name}.safetensors"
        save_file(weights, path, metadata={"pnpcm": json.dumps(header)})
    save_file(weights, cached / "bad-foreign.safetensors")
    assert sum(e.damage is not None for e in catalogue.entries()) == len(headers) + 1


def test_locate_takes_names_files_and_exported_folders(shipped: Path, tmp_path: Path) -> None:
    file = shipped / "natural-cm.safetensors"
    hub.export_folder(file, tmp_path / "net", card="# card")
    assert catalogue.locate("natural", "edm").kind == "edm"
    assert catalogue.locate(file).name == "tiny"  # as its maker calls it
    assert catalogue.locate(str(tmp_path / "net")).card == tmp_path / "net" / "README.md"
    export_openai(consistency(), tmp_path / "x.pt")
    for wrong, word in (
        (tmp_path / "x.pt", "pnpcm priors convert"),
        (tmp_path / "y.safetensors", "is not a file"),
        (tmp_path, "without a pnpcm prior"),
    ):
        with pytest.raises(CheckpointError, match=word):
            catalogue.locate(wrong)
    with pytest.raises(ArgumentError, match="leave kind out"):
        catalogue.locate(file, "edm")
    with pytest.raises(UnknownNameError, match="known: natural"):
        catalogue.locate("xyz")


# --- folders for the Hub ------------------------------------------------------------------------


@pytest.fixture
def folder(shipped: Path, tmp_path: Path) -> Path:
    hub.export_folder(shipped / "natural-cm.safetensors", tmp_path / "net", card="# natural\n")
    return tmp_path / "net"


def front_matter(folder: Path) -> tuple[dict[str, Any], str]:
    head, _, rest = (folder / "README.md").read_text().removeprefix("---\n").partition("\n---\n")
    return yaml.safe_load(head), rest


def test_an_exported_folder_is_read_back(shipped: Path, folder: Path) -> None:
    assert sorted(p.name for p in folder.iterdir()) == [
        "README.md",
        "config.json",
        "model.safetensors",
    ]
    source = load_own(shipped / "natural-cm.safetensors")
    assert same(load_prior(folder), source)
    assert load_prior(str(folder)).info == INFO  # type: ignore[attr-defined]
    config = json.loads((folder / "config.json").read_text())
    assert config["kind"] == "consistency"
    assert UNetConfig.from_dict(config["network"]) == TINY
    head, rest = front_matter(folder)
    assert (head["license"], head["library_name"]) == ("cc-by-4.0", "pnpcm")
    assert "consistency-model" in head["tags"]
    assert rest.strip() == "# natural"
    assert (folder / "model.safetensors").stat().st_mode & 0o040  # others may read what is shared
    with pytest.raises(ArgumentError, match="leave kind out"):
        load_prior(folder, kind="edm")
    with pytest.raises(ArgumentError, match="leave network out"):
        load_prior(folder, network={"image_size": 64})


def test_cards_without_a_known_licence_or_without_a_card(shipped: Path, tmp_path: Path) -> None:
    save_prior(edm(), tmp_path / "a.safetensors", info={"licence": 'my "own": terms', "data": [1]})
    hub.export_folder(tmp_path / "a.safetensors", tmp_path / "a")
    head, rest = front_matter(tmp_path / "a")
    assert (head["license"], head["license_name"]) == ("other", 'my "own": terms')
    assert "- **data**: [1]" in rest
    assert "load_prior" in rest
    hub.export_folder(shipped / "natural-edm.safetensors", tmp_path / "b")
    assert front_matter(tmp_path / "b")[0]["license"] == "unknown"
    again = (tmp_path / "b" / "README.md").read_text()  # a card that has front matter already
    hub.export_folder(tmp_path / "b" / "model.safetensors", tmp_path / "c", card=again)
    assert (tmp_path / "c" / "README.md").read_text() == again


def test_export_overwrites_only_when_told_and_only_its_own(shipped: Path, folder: Path) -> None:
    (folder / "notes.txt").write_text("mine")
    teacher = shipped / "natural-edm.safetensors"
    with pytest.raises(ArgumentError, match="exists and is not empty"):
        hub.export_folder(teacher, folder)
    assert load_prior(folder).kind == "consistency"  # type: ignore[attr-defined]
    hub.export_folder(teacher, folder, force=True)
    assert load_prior(folder).kind == "edm"  # type: ignore[attr-defined]
    assert (folder / "notes.txt").read_text() == "mine"
    with pytest.raises(ArgumentError, match="which is a file"):
        hub.export_folder(teacher, folder / "notes.txt", force=True)
    with pytest.raises(ArgumentError, match="is not a folder"):
        hub.export_folder(teacher, folder / "a" / "b")


def test_an_interrupted_export_leaves_nothing(
    shipped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(path: Path, text: str) -> None:
        raise KeyboardInterrupt

    before = sorted(tmp_path.rglob("*"))
    monkeypatch.setattr(hub, "write_text", interrupt)
    with pytest.raises(KeyboardInterrupt):
        hub.export_folder(shipped / "natural-cm.safetensors", tmp_path / "net")
    assert sorted(tmp_path.rglob("*")) == before


def test_a_config_that_contradicts_the_weights_is_refused(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    config["options"]["sigma_max"] = 20.0
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match="differ in 'options'"):
        load_prior(folder)
    (folder / "config.json").write_text(json.dumps({"pnpcm": "0.1"}))
    (folder / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"model\.safetensors is not a file"):
        load_prior(folder)


def test_hub_ids_of_ours_are_read_and_others_go_to_diffusers(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str | None, list[str]]] = []
    place = folder.rename(tmp_path / COMMIT)  # as huggingface_hub names its snapshots

    def download(name: str, *, revision: str | None, allow_patterns: list[str]) -> str:
        assert name == "someone/some-net"
        asked.append((revision, allow_patterns))
        return str(place)

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    ours = ["config.json", "model.safetensors", "README.md"]
    for given, hub_id in ((None, "hf:someone/some-net"), ("v1.0", "hf:someone/some-net@v1.0")):
        assert same(load_prior(hub_id), load_prior(place))
        # the commit is asked for once; then all files are of it
        assert asked == [(given, ["config.json"]), (COMMIT, ["config.json"]), (COMMIT, ours)]
        asked.clear()
    assert Priors("hf:someone/some-net").name == f"hf:someone/some-net@{COMMIT}"
    asked.clear()
    assert catalogue.pinned(f"hf:someone/some-net@{COMMIT}") == f"hf:someone/some-net@{COMMIT}"
    assert asked == []

    (tmp_path / "theirs").mkdir()
    place = tmp_path / "theirs" / COMMIT
    place.mkdir()
    (place / "config.json").write_text(json.dumps({"_class_name": "UNet2DConditionModel"}))
    with pytest.raises(CheckpointError, match="holds a UNet2DConditionModel"):
        load_prior("hf:someone/some-net")
    assert [patterns for _, patterns in asked[:2]] == [["config.json"]] * 2  # no weights yet
    assert "*diffusion_pytorch_model.safetensors" in asked[2][1]


def test_only_the_prefix_reaches_the_hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def download(name: str, **options: Any) -> str:
        raise AssertionError(f"{name} was downloaded")

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    monkeypatch.chdir(tmp_path)
    for mistyped in ("priors/natural", "priors/natural.safetensors", Path("runs/net")):
        with pytest.raises(CheckpointError, match=r"there is no file .*write hf:owner/name"):
            load_prior(mistyped)
    for bad in ("hf:natural", "hf:a/b/c", "hf:a/b@", "hf:../b", "hf:"):
        with pytest.raises(ArgumentError, match="expected hf:owner/name or hf:owner/name@revision"):
            load_prior(bad)


def test_the_hub_may_be_out_of_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str, **options: Any) -> str:
        raise OSError("no connection")

    monkeypatch.setattr("huggingface_hub.snapshot_download", refuse)
    with pytest.raises(CheckpointError, match=r"hf:someone/some-net .*no connection"):
        load_prior("hf:someone/some-net")
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(MissingExtraError, match=r'pip install "pnpcm\[hf\]"'):
        load_prior("hf:someone/some-net")
