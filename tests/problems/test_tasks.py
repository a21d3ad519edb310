"""Every task: its operator fits its images, what is measured can be solved, options are checked."""

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

import golden
from pnpcm.errors import ArgumentError, ShapeError, UnknownNameError
from pnpcm.names import TASK_NAMES
from pnpcm.operators import JPEG, Blur, Inpainting, SuperResolution, measure
from pnpcm.presets import PRESETS
from pnpcm.problems import (
    TASKS,
    Custom,
    Deblur,
    Denoise,
    Inpaint,
    Jpeg,
    NonlinearDeblur,
    PhaseRetrievalTask,
    SuperRes,
    Task,
    TaskChoice,
    build,
)
from pnpcm.problems.task import conditioning

EXAMPLES: dict[str, Task] = {
    "denoise": Denoise(),
    "inpaint": Inpaint(missing=0.6),
    "superres": SuperRes(factor=3),
    "deblur": Deblur(motion=(5, 30)),
    "jpeg": Jpeg(quality=10),
    "nonlinear-deblur": NonlinearDeblur(),
    "phase-retrieval": PhaseRetrievalTask(),
}


def image(height: int = 24, width: int = 33) -> Tensor:
    return torch.rand((1, 3, height, width), generator=torch.Generator().manual_seed(3)) * 2 - 1


def test_names_are_known_without_torch() -> None:
    assert tuple(TASKS) == TASK_NAMES
    assert set(EXAMPLES) == set(TASKS)


@pytest.mark.parametrize("name", TASKS)
def test_what_a_task_degrades_it_can_pose_as_a_problem(name: str) -> None:
    generator = torch.Generator().manual_seed(0)
    x, task = EXAMPLES[name].fit(image())
    shape = tuple(x.shape[1:])
    task = task.prepared(shape, generator)
    operator = task.operator(shape)
    y = measure(operator, x, 0.0)
    problem = task.problem(y)
    solved_for = problem.operator.x_shape(problem.y)
    assert problem.picture(torch.zeros(solved_for)).shape[-2:] == image().shape[-2:]
    assert task.baseline(problem).shape[-2:] == image().shape[-2:]
    assert torch.allclose(problem.operator.A(x), operator.A(x))
    assert task.error_std(0.1) >= 0.1


def test_unknown_borders_use_nothing_outside_the_canvas() -> None:
    """The forward model is the valid part of the blur of a larger image."""
    scene = image(40, 41)
    task = Deblur(kernel=torch.rand(4, 7, generator=torch.Generator().manual_seed(1)).double())
    seen = Blur(task.taps, (3, 40, 41), "zero").A(scene)
    top, left = 1, 3  # a kernel of n taps reaches n - 1 - n // 2 pixels up and n // 2 down
    photo = seen[..., top : 40 - 2, left : 41 - 3]
    problem = task.problem(photo)
    canvas = torch.full(problem.operator.x_shape(photo), 0.7)  # what is grown must not matter
    canvas[..., :40, :41] = scene
    assert torch.allclose(problem.operator.A(canvas), photo, atol=1e-6)
    assert torch.equal(problem.picture(canvas), scene[..., top : 40 - 2, left : 41 - 3])


def test_superresolution_grows_odd_sides_and_crops_again() -> None:
    x = image(23, 31)
    grown, task = SuperRes(factor=4).fit(x)
    assert grown.shape[-2:] == (24, 32)
    assert torch.equal(grown[..., 23, :31], x[..., 22, :])
    problem = task.problem(SuperResolution((3, 24, 32), 4).A(grown))
    assert torch.equal(problem.picture(grown), x)


def test_error_of_jpeg_is_about_what_the_codec_does() -> None:
    """The law behind the number: the codec's error on a photo-like image at each quality."""
    from pathlib import Path

    import pnpcm
    from pnpcm.io.files import read_image

    path = Path(pnpcm.__file__).parent / "data" / "Picture_0B_by_freespace.png"
    x = read_image(path)
    for quality in (5, 10, 30):
        rms = float((JPEG(quality).acquire(x) - x).square().mean().sqrt())
        assert 0.5 < Jpeg(quality=quality).error_std(0.0) / rms < 2.5


def test_conditioning_of_known_operators() -> None:
    mask = (torch.rand(32, 32, generator=torch.Generator().manual_seed(0)) < 0.3).float()
    y = torch.zeros(1, 3, 32, 32)
    gain, seen = conditioning(Inpainting(mask), y)
    assert gain == pytest.approx(1, abs=0.02)
    assert seen == pytest.approx(float(mask.mean()), rel=0.15)
    kernel = torch.full((3, 3), 1 / 9, dtype=torch.float64)
    gain, seen = conditioning(Blur(kernel, (3, 32, 32), "circular"), y)
    assert gain == pytest.approx(1, abs=0.02)
    assert seen == pytest.approx(1 / 9, rel=0.15)  # Σ k²


@pytest.mark.parametrize("name", ["superres-4", "deblur-gauss", "jpeg-5", "inpaint-70"])
def test_a_task_and_its_bare_operator_are_described_alike(name: str) -> None:
    """Presets are found for both."""
    preset = PRESETS[f"natural/{name}"]
    task = {
        "superres-4": SuperRes(4),
        "deblur-gauss": Deblur(gaussian=(5, 10.0), boundary="zero"),
        "jpeg-5": Jpeg(5),
        "inpaint-70": Inpaint(missing=0.7),
    }[name]
    task = task.prepared((3, 64, 64), torch.Generator().manual_seed(0))
    bare = Custom(task.operator((3, 64, 64)))
    for each in (task, bare):
        assert (each.operator_name, each.options) == (preset.operator, dict(preset.options))


def test_reference_tasks_are_those_of_the_papers_code() -> None:
    """Norms of the test image after the authors' blur, codec and surrogate of the codec."""
    x = golden.image()
    blur = Deblur(gaussian=(5, 10.0), reference=True).operator((3, 256, 256))
    assert float(blur.A(x).norm()) == pytest.approx(166.74, rel=1e-3)
    jpeg = Jpeg(quality=5, reference=True).operator((3, 256, 256))
    assert float(jpeg.acquire(x).norm()) == pytest.approx(210.0912, rel=1e-5)
    assert float(jpeg.A(x).norm()) == pytest.approx(197.4690, rel=1e-5)
    phase = PhaseRetrievalTask(golden.code_mask(), reference=True).operator((3, 256, 256))
    y = phase.A(x)
    # its start comes from its own seed, whatever generator is handed in
    starts = [phase.z_start(y, torch.Generator().manual_seed(seed)) for seed in (0, 1)]
    assert torch.equal(*starts)


def test_reference_tasks_fit_the_presets_of_the_paper() -> None:
    task: dict[str, Task] = {
        "deblur-gauss": Deblur(gaussian=(5, 10.0), reference=True),
        "jpeg-5": Jpeg(quality=5, reference=True),
        "nonlinear-deblur": NonlinearDeblur(kernel_wizard="GOPRO_wVAE.pth"),
        "phase-retrieval": PhaseRetrievalTask(golden.code_mask(), reference=True),
    }
    for name, each in task.items():
        row = PRESETS[f"celeba-hq/{name}-reference"]
        assert (each.operator_name, each.options) == (row.operator, dict(row.options))
        assert each.options != dict(PRESETS[f"celeba-hq/{name}"].options)
    for name in ("deblur-gauss", "phase-retrieval"):
        bare = Custom(task[name].operator((3, 256, 256)))
        assert bare.options == task[name].options


def test_reference_tasks_refuse_what_the_papers_code_does_not_have() -> None:
    for options in ({"motion": (5, 30)}, {"gaussian": (5, 10.0), "boundary": "circular"}):
        with pytest.raises(ArgumentError, match="with zero borders; give gaussian"):
            Deblur(**options, reference=True)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="has its own blur; leave length, exposure out"):
        NonlinearDeblur(length=3.0, exposure=2.0, kernel_wizard="file.pth")
    with pytest.raises(ArgumentError, match=r"kernel_wizard is no\.pth, which is not a file; give"):
        NonlinearDeblur(kernel_wizard="no.pth").operator((3, 128, 128))


def test_options_are_checked() -> None:
    with pytest.raises(ArgumentError, match="does not take mask; it takes: factor"):
        build(SuperRes, {"mask": 1})
    with pytest.raises(UnknownNameError, match="did you mean 'bicubic'"):
        SuperRes(downsampler="bicubik")
    with pytest.raises(ArgumentError, match="exactly one of kernel, gaussian and motion"):
        Deblur()
    for gaussian in ((0, 2.0), (9.5, 2.0), (9, 0.0), (9, math.nan), (math.inf, 2), (2000, 2)):
        with pytest.raises(ArgumentError, match=r"gaussian is \(.*expected a whole size of 1 to"):
            Deblur(gaussian=gaussian)
    for motion in ((0.5, 30), (-5, 30), (math.inf, 30), (5, math.nan), (2000, 30)):
        with pytest.raises(ArgumentError, match=r"motion is \(.*expected a length of 1 to"):
            Deblur(motion=motion)
    with pytest.raises(ArgumentError, match="needs a mask"):
        Inpaint()
    with pytest.raises(ShapeError, match="mask is 4×4 and the image 24×33"):
        Inpaint(mask=torch.ones(4, 4)).problem(image())
    with pytest.raises(ArgumentError, match="quality"):
        Jpeg()
    for quality in (0, 101, 7.5, True):
        with pytest.raises(ArgumentError, match=r"a whole number 1…100; leave it out for a \.jpg"):
            Jpeg(quality=quality)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="factor must be"):
        SuperRes(factor=1)


def test_a_turned_mask_is_explained() -> None:
    words = "mask is 33×24 and the image 24×33 .*; it seems to be turned by 90°: .* EXIF"
    with pytest.raises(ShapeError, match=words):
        Inpaint(mask=torch.ones(33, 24)).problem(image())


def test_missing_share_is_rounded() -> None:
    mask = torch.ones(100)
    mask[:68] = 0
    assert Inpaint(mask=mask.reshape(10, 10)).options == {"missing": 0.7}
    assert math.isclose(Inpaint(missing=0.5).options["missing"], 0.5)


def test_the_mask_of_an_image_has_its_name_and_subfolder(tmp_path: Path) -> None:
    masks, images = tmp_path / "masks", tmp_path / "in"
    for name in ("a.png", "b.png", "b.tif", "s/a.png"):
        for folder in (masks, images):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).touch()
    choice = TaskChoice("inpaint", mask=masks)
    assert choice.mask_of(images / "a.png") == masks / "a.png"
    assert choice.mask_of(images / "s" / "a.png") == masks / "s" / "a.png"
    with pytest.raises(ArgumentError, match=r"named b .*; found: b\.png, b\.tif"):
        choice.mask_of(images / "b.png")
    with pytest.raises(ArgumentError, match="found: none"):
        choice.mask_of(masks / "a.png")  # an image is not its own mask
    single = masks / "a.png"
    assert TaskChoice("inpaint", mask=single).mask_of(images / "b.png") == single
