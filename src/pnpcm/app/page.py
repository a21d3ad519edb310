"""Layout of the page (Gradio) and the functions of its controls."""

from __future__ import annotations

import html
import io
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gradio as gr
from PIL import Image

from pnpcm.app.examples import Example
from pnpcm.app.form import (
    BLURS,
    DEFAULT_METHOD,
    MAX_FACTOR,
    MAX_KERNEL,
    MAX_SAMPLES,
    METHODS,
    NO_METHOD,
    SCAN_SUFFIXES,
    TASK_LABELS,
    Form,
    is_measurement,
    is_scan,
    prior_names,
)
from pnpcm.app.view import Verdict, View, reduced
from pnpcm.app.work import MEGA, Stopped, Upload, Work, merged
from pnpcm.errors import ArgumentError, PnPCMError
from pnpcm.io.photos import SUFFIXES
from pnpcm.problems.linear import BOUNDARIES
from pnpcm.problems.measurement import SUFFIX
from pnpcm.recon.photo import DEFAULT_PRIOR

USUAL = Form()
PAINT_SIDE = 1024
"""Largest side of the picture in the editor, which sends it back many times."""
IDLE = "Drop an image or a scan, choose what to do, and press Restore."
NOISE_LABELS = [
    ("Automatic", "automatic"),
    ("Estimate from the image", "estimated"),
    ("Known", "known"),
]
AIM_LABELS = [("Closest to the truth", "fidelity"), ("Sharp, plausible detail", "perception")]
BLUR_LABELS = dict(zip(BLURS, ("Gaussian", "Motion", "Kernel file"), strict=True))


# pieces of HTML ----------------------------------------------------------------------------------
def card(level: str, title: str, sentences: Sequence[str] = ()) -> str:
    """A box with a coloured edge; ``level``: good, care, bad or plain."""
    points = "".join(f"<li>{html.escape(s)}</li>" for s in sentences)
    inner = f"<b>{html.escape(title)}</b>" + (f"<ul>{points}</ul>" if points else "")
    return f'<div class="card {level}">{inner}</div>'


def brush(side: int) -> gr.Brush:
    """A brush for a picture with this shorter side: Gradio's own covers small ones at a stroke."""
    return gr.Brush(colors=["#ff2d55"], color_mode="fixed", default_size=max(2, side // 50))


def verdict_card(verdict: Verdict) -> str:
    return card(verdict.level, verdict.title, verdict.sentences)


def facts(text: str) -> str:
    """A line of small print."""
    return f'<p class="facts">{html.escape(text)}</p>'


def limits_text(work: Work) -> str:
    """The formats and limits of an image."""
    limits = work.limits
    return (
        f"PNG, JPEG, TIFF, WebP, a measurement file, or a raw MRI scan "
        f"({', '.join(SCAN_SUFFIXES)}); at most {limits.max_bytes / MEGA:.3g} MB, image and result "
        f"at most {limits.max_pixels / MEGA:.3g} megapixels."
    )


def sentence_of(error: Exception) -> str:
    """One sentence for the page; the traceback of an unexpected error goes to the terminal."""
    if isinstance(error, PnPCMError):
        text = str(error)
    else:
        traceback.print_exception(error)
        text = f"an error in pnpcm ({type(error).__name__}); the terminal of the app shows where"
    first = text.split(" ", 1)[0]
    if "." not in first:  # the name of a file keeps its letters
        text = text[:1].upper() + text[1:]
    return text.rstrip(".") + "."


# results -----------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Slot:
    """The components of one result."""

    column: gr.Column
    heading: gr.HTML
    slider: gr.ImageSlider
    verdict: gr.HTML
    result: gr.DownloadButton
    record: gr.DownloadButton
    mask: gr.DownloadButton
    iterates: gr.Gallery
    spread: gr.Image
    spread_note: gr.HTML
    report: gr.Textbox
    command: gr.Code
    code: gr.Code

    @property
    def components(self) -> list[Any]:
        return list(vars(self).values())

    def show(self, view: View | None) -> list[Any]:
        """Updates of the components; None empties and hides them."""
        if view is None:
            empty = [gr.update(value=None) for _ in self.components[1:]]
            return [gr.update(visible=False), *empty]
        stages = ", ".join(f"{k} {v:.1f} s" for k, v in view.seconds.items() if v >= 0.05)
        heading = f'<p class="part">{html.escape(view.cost)}</p>' + facts(stages)
        masks = [str(path) for path in view.files if path.name == "mask.png"]
        note = "One sample has no spread. Set samples to 2 or more under Advanced."
        return [
            gr.update(visible=True),
            heading,
            (view.before, view.after),
            verdict_card(view.verdict),
            str(view.files[0]),
            str(view.files[1]),
            gr.update(value=masks[0] if masks else None, visible=bool(masks)),
            view.iterates,
            gr.update(value=view.spread and view.spread[0], visible=view.spread is not None),
            facts(view.spread[1] if view.spread else note),
            view.report,
            view.command,
            view.code,
        ]


def slot(number: int) -> Slot:
    """The place of one result."""
    name = f"result-{number}"
    with gr.Column(visible=False, min_width=300, elem_id=name) as column:
        heading = gr.HTML()
        slider = gr.ImageSlider(
            label="Before (left) and after (right)", type="pil", format="png", interactive=False
        )
        verdict = gr.HTML(elem_classes="verdict")
        with gr.Row():
            result = gr.DownloadButton("Save result", variant="primary", min_width=90)
            record = gr.DownloadButton("Save record", min_width=90)
            mask = gr.DownloadButton("Save mask", min_width=90, visible=False)
        with gr.Tabs():
            with gr.Tab("Steps"):
                iterates = gr.Gallery(
                    show_label=False,
                    columns=4,
                    object_fit="contain",
                    height="auto",
                    format="png",
                    buttons=[],
                    elem_classes="pictures steps",
                )
            with gr.Tab("Spread"):
                spread_note = gr.HTML()
                spread = gr.Image(
                    label="Spread",
                    interactive=False,
                    format="png",
                    buttons=["download", "fullscreen"],
                )
            with gr.Tab("Details"):
                report = gr.Textbox(label="Report", lines=8, interactive=False)
            with gr.Tab("Code"):
                command = gr.Code(
                    label="The same on the command line",
                    language=None,
                    lines=1,
                    wrap_lines=True,
                    elem_classes="words",
                )
                code = gr.Code(
                    label="The same in Python",
                    language="python",
                    wrap_lines=True,
                    elem_classes="words",
                )
    return Slot(
        column,
        heading,
        slider,
        verdict,
        result,
        record,
        mask,
        iterates,
        spread,
        spread_note,
        report,
        command,
        code,
    )


# controls ----------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Controls:
    """The components that the user sets. ``fields``: those of ``Form``, by name."""

    image: gr.File
    about: gr.HTML
    picture: gr.Image
    editor: gr.ImageEditor
    painted: gr.State
    mask: gr.File
    kernel: gr.File
    fields: dict[str, Any]
    groups: dict[str, Any]

    @property
    def inputs(self) -> list[Any]:
        return [self.image, self.painted, self.mask, self.kernel, *self.fields.values()]

    def read(self, values: Sequence[Any]) -> tuple[Form, Upload]:
        """The form and the uploads of the values of :attr:`inputs`."""
        image, painted, mask, kernel, *rest = values
        if image is None:
            raise ArgumentError("there is no image; drop one into the field at the top")
        form = Form.of(dict(zip(self.fields, rest, strict=True)))
        marks = None if painted is None else Image.open(io.BytesIO(painted))
        files = {"mask": mask, "kernel": kernel}
        given = {name: Path(path) for name, path in files.items() if path is not None}
        return form, Upload(Path(image), **given, painted=marks)


def image_controls(work: Work) -> tuple[Any, ...]:
    """The field for the image or scan, its description and its picture."""
    image = gr.File(
        label="Image or scan",
        file_types=[*SUFFIXES, SUFFIX, *SCAN_SUFFIXES],
        type="filepath",
        height=130,
        elem_id="image",
    )
    about = gr.HTML(facts(limits_text(work)), elem_id="about")
    picture = gr.Image(
        show_label=False,
        interactive=False,
        visible=False,
        height=240,
        buttons=["fullscreen"],
        elem_id="picture",
    )
    return image, about, picture


def task_controls() -> tuple[dict[str, Any], dict[str, Any], Any, Any, Any]:
    """The task and the options of each task, which are shown when it is chosen."""
    fields: dict[str, Any] = {}
    groups: dict[str, Any] = {}
    labels = [(label, name) for name, label in TASK_LABELS.items()]
    fields["task"] = gr.Dropdown(labels, value=USUAL.task, label="What to do", elem_id="task")
    with gr.Column(visible=False) as groups["inpaint"]:
        gr.HTML('<p class="part">Paint over the areas to be filled</p>')
        editor = gr.ImageEditor(
            show_label=False,
            type="pil",
            sources=(),
            transforms=(),
            layers=False,
            brush=brush(PAINT_SIDE),
            format="png",
            height=420,
            elem_id="editor",
        )
        mask = gr.File(
            label="Or a mask file: white is filled",
            file_types=list(SUFFIXES),
            height=130,
            elem_id="mask",
        )
    with gr.Column(visible=False) as groups["superres"]:
        fields["factor"] = gr.Slider(2, MAX_FACTOR, USUAL.factor, step=1, label="Factor")
    with gr.Column(visible=False) as groups["deblur"]:
        blurs = [(label, name) for name, label in BLUR_LABELS.items()]
        fields["blur"] = gr.Radio(blurs, value=USUAL.blur, label="Blur")
        with gr.Row(visible=True) as groups["gaussian"]:
            fields["size"] = gr.Slider(3, 51, USUAL.size, step=2, label="Size in pixels")
            fields["width"] = gr.Slider(0.3, 20, USUAL.width, step=0.1, label="Sigma in pixels")
        kernel = gr.File(
            label="Kernel, a .npy file of a 2-D array",
            file_types=[".npy"],
            height=130,
            visible=False,
            elem_id="kernel",
        )
    with gr.Row(visible=False) as groups["motion"]:
        fields["length"] = gr.Slider(1, MAX_KERNEL, USUAL.length, step=0.5, label="Length, pixels")
        fields["angle"] = gr.Slider(-180, 180, USUAL.angle, step=1, label="Direction, degrees")
    with gr.Column(visible=False) as groups["jpeg"]:
        fields["quality"] = gr.Slider(
            0, 100, USUAL.quality, step=1, label="Quality", info="0: read from the .jpg file."
        )
    with gr.Row(visible=False) as groups["mri"]:
        fields["slice"] = gr.Number(
            USUAL.slice,
            precision=0,
            minimum=0,
            label="Slice",
            info="Counted from 0; the middle one is proposed.",
            min_width=200,
        )
        fields["acceleration"] = gr.Slider(
            1,
            MAX_FACTOR,
            USUAL.acceleration,
            step=1,
            label="Undersample a full scan by",
            info="1: all lines of the file are used.",
            min_width=200,
        )
    return fields, groups, editor, mask, kernel


def method_controls() -> dict[str, Any]:
    """Noise, aim, steps and methods."""
    fields: dict[str, Any] = {}
    fields["noise"] = gr.Radio(
        NOISE_LABELS,
        value=USUAL.noise,
        label="Noise of the image",
        info="Automatic: estimated; for filling, 0: the other pixels stay as they are.",
    )
    fields["sigma_y"] = gr.Slider(
        0,
        0.5,
        USUAL.sigma_y,
        step=0.005,
        label="Standard deviation, on the scale 0 to 1",
        visible=False,
    )
    fields["aim"] = gr.Radio(AIM_LABELS, value=USUAL.aim, label="Aim")
    with gr.Row():
        fields["method"] = gr.Dropdown(
            [("Default of the task", DEFAULT_METHOD), *METHODS],
            value=USUAL.method,
            label="Method",
            min_width=200,
        )
        fields["second"] = gr.Dropdown(
            [("No second method", NO_METHOD), ("Default of the task", DEFAULT_METHOD), *METHODS],
            value=USUAL.second,
            label="Compare with",
            min_width=200,
        )
    fields["steps"] = gr.Slider(
        0, 32, USUAL.steps, step=1, label="Steps", info="0: chosen automatically."
    )
    with gr.Accordion("Advanced", open=False):
        fields["samples"] = gr.Slider(
            1,
            MAX_SAMPLES,
            USUAL.samples,
            step=1,
            label="Samples",
            info="2 or more: their mean, and a map of where they differ.",
        )
        fields["seed"] = gr.Number(USUAL.seed, precision=0, label="Seed of the random numbers")
        names = list(prior_names())
        fields["prior"] = gr.Dropdown(names, value=DEFAULT_PRIOR, label="Prior of photographs")
        fields["downsampler"] = gr.Radio(
            [("Bicubic", "bicubic"), ("Mean of squares", "area")],
            value=USUAL.downsampler,
            label="Enlarge: how the image was reduced",
        )
        fields["boundary"] = gr.Dropdown(
            list(BOUNDARIES), value=USUAL.boundary, label="Blur: outside of the image"
        )
        fields["linear_light"] = gr.Checkbox(
            USUAL.linear_light, label="Blur: acts on linear light, not on sRGB values"
        )
        fields["key"] = gr.Textbox(USUAL.key, label="Scan as arrays: name of k-space")
        fields["axes"] = gr.Textbox(
            USUAL.axes,
            label="Scan as arrays: axes of k-space",
            info="In their order, e.g. coil,row,col or row,col,coil; rows are along the readout.",
        )
    return fields


def visible_groups(task: str, blur: str) -> dict[str, bool]:
    """Which groups of options are shown."""
    deblur = task == "deblur"
    return {
        "inpaint": task == "inpaint",
        "superres": task == "superres",
        "deblur": deblur,
        "gaussian": deblur and blur == "gaussian",
        "motion": task == "nonlinear-deblur" or (deblur and blur == "motion"),
        "jpeg": task == "jpeg",
        "mri": task == "mri",
    }


# the page ----------------------------------------------------------------------------------------
def page(work: Work, examples: Sequence[Example]) -> gr.Blocks:
    """The page that ``work`` serves."""
    hour = 3600
    with gr.Blocks(
        title="pnpcm", analytics_enabled=False, delete_cache=(hour // 6, hour)
    ) as blocks:
        gr.HTML(
            "<h1>pnpcm</h1><p>Restore photographs and MRI scans in a few network evaluations. "
            "Files stay on the machine that runs this page.</p>",
            elem_classes="head",
        )
        with gr.Row():
            with gr.Column(scale=2, min_width=320):
                image, about, picture = image_controls(work)
                fields, groups, editor, mask, kernel = task_controls()
                fields |= method_controls()
            with gr.Column(scale=3, min_width=320):
                with gr.Row():  # above the results, so that the progress is beside the button
                    run = gr.Button("Restore", variant="primary", min_width=100, elem_id="run")
                    stop = gr.Button("Stop", min_width=100, elem_id="stop")
                status = gr.HTML(card("plain", IDLE), elem_classes="status", elem_id="status")
                with gr.Row():
                    slots = [slot(1), slot(2)]
                gr.HTML('<p class="part">Examples: click one, then press Restore</p>')
                chooser = gr.Gallery(
                    [(str(one.picture or one.image), one.label) for one in examples],
                    show_label=False,
                    columns=len(examples),
                    allow_preview=False,
                    object_fit="cover",
                    height="auto",
                    buttons=[],
                    elem_id="examples",
                    elem_classes="pictures",
                )
        painted = gr.State()
        controls = Controls(image, about, picture, editor, painted, mask, kernel, fields, groups)
        _connect_controls(work, controls)
        _connect_examples(controls, chooser, examples)
        _connect_run(work, controls, run, stop, status, slots)
        blocks.unload(_leaving(work))
    for component in (image, mask, kernel, editor):
        _take_only_uploads(component, work.root)
    return blocks


def _connect_controls(work: Work, controls: Controls) -> None:
    task, blur, noise = (controls.fields[name] for name in ("task", "blur", "noise"))

    def groups(task: str, blur: str) -> list[Any]:
        shown = visible_groups(task, blur)
        updates = [gr.update(visible=shown[name]) for name in controls.groups]
        return [*updates, gr.update(visible=shown["deblur"] and blur == "kernel")]

    def look(image: str | None, task: str) -> list[Any]:
        nothing = [gr.update(value=None, visible=False), gr.update(value=None)]
        if image is None:
            return [facts(limits_text(work)), *nothing]
        try:
            picture, text = work.preview(Path(image))
        except Exception as error:
            return [card("bad", sentence_of(error)), *nothing]
        paints = task == "inpaint" and not is_measurement(image)
        small = None if picture is None else reduced(picture, PAINT_SIDE)
        canvas: Any = {"background": small, "layers": [], "composite": None}
        return [
            facts(text),
            gr.update(value=picture, visible=picture is not None and not paints),
            gr.update(value=canvas, brush=brush(min(small.size)))
            if paints and small is not None
            else gr.update(value=None),
        ]

    def sort(image: str | None, task: str) -> list[Any]:
        """The task that the upload is for, and the middle slice of a scan."""
        if image is None or is_scan(image) == (task == "mri"):
            chosen = gr.skip()
        else:
            chosen = "mri" if is_scan(image) else USUAL.task
        count = work.slices(Path(image)) if image is not None and is_scan(image) else None
        return [chosen, gr.skip() if count is None else count // 2]

    choice = [*controls.groups.values(), controls.kernel]
    gr.on([task.change, blur.change], groups, [task, blur], choice, show_progress="hidden")
    noise.change(
        lambda noise: gr.update(visible=noise == "known"),
        noise,
        controls.fields["sigma_y"],
        show_progress="hidden",
    )
    controls.image.change(
        sort, [controls.image, task], [task, controls.fields["slice"]], show_progress="hidden"
    )
    gr.on(
        [controls.image.change, task.change],
        look,
        [controls.image, task],
        [controls.about, controls.picture, controls.editor],
        concurrency_limit=2,
        show_progress="hidden",
    )


def _connect_examples(controls: Controls, chooser: gr.Gallery, examples: Sequence[Example]) -> None:
    def choose(event: gr.SelectData) -> list[Any]:
        example = examples[int(event.index)]
        values = {name: getattr(USUAL, name) for name in controls.fields} | dict(example.values)
        mask = None if example.mask is None else str(example.mask)
        return [str(example.image), mask, None, *values.values()]

    outputs = [controls.image, controls.mask, controls.kernel, *controls.fields.values()]
    chooser.select(choose, None, outputs, show_progress="hidden")


def _connect_run(
    work: Work,
    controls: Controls,
    run: gr.Button,
    stop: gr.Button,
    status: gr.HTML,
    slots: Sequence[Slot],
) -> None:
    hidden = [update for slot in slots for update in slot.show(None)]

    def restore(request: gr.Request, progress: Any = gr.Progress(), *values: Any) -> list[Any]:  # noqa: B008
        try:
            form, upload = controls.read(values)
            views = work.restore(
                str(request.session_hash),
                form,
                upload,
                lambda text, share: progress(share, desc=text),
            )
        except Stopped:
            return [card("plain", "Stopped."), *hidden]
        except Exception as error:
            return [card("bad", sentence_of(error)), *hidden]
        shown = [views[0], views[1] if len(views) > 1 else None]
        updates = [u for slot, view in zip(slots, shown, strict=True) for u in slot.show(view)]
        return [card("good", "Done."), *updates]

    def keep(editor: Any) -> bytes | None:
        marks = merged((editor or {}).get("layers") or [])
        if marks is None:
            return None
        content = io.BytesIO()
        marks.save(content, "PNG")
        return content.getvalue()

    def halt(request: gr.Request) -> str:
        work.stop(str(request.session_hash))
        return card("plain", "Stopped.")

    # the editor sends its layers with every message of an event that it is an input of
    kept = run.click(keep, controls.editor, controls.painted, show_progress="hidden")
    started = kept.success(
        restore,
        controls.inputs,
        [status, *(c for slot in slots for c in slot.components)],
        concurrency_limit=1,
        concurrency_id="restore",
        show_progress_on=status,
        api_name="restore",
    )
    stop.click(
        halt,
        None,
        status,
        cancels=[kept, started],
        queue=False,
        show_progress="hidden",
        api_name="stop",
    )


def _leaving(work: Work) -> Callable[[gr.Request], None]:
    """What happens when a tab is closed: its restoration stops, its files are deleted."""

    def leave(request: gr.Request) -> None:
        session = str(request.session_hash)
        if not work.stop(session):
            work.forget(session)

    return leave


def _take_only_uploads(component: Any, root: Path) -> None:
    """Refuse paths outside of ``root`` and addresses, before Gradio copies or downloads them.

    Gradio checks paths of requests only in an app that it has launched itself.
    """
    move = component.async_move_resource_to_block_cache

    async def checked(path: Any) -> Any:
        if path is not None and not Path(path).resolve().is_relative_to(root):
            raise ArgumentError("the file is not an upload of this page; upload it again")
        return await move(path)

    component.async_move_resource_to_block_cache = checked
