"""Choice of method and parameters of a reconstruction; values of the user take precedence.

Parameters of PnP-CM: the user's preset, else a preset of the same problem, else the rule fitted to
the presets of the family. Parameters of other methods: their row of ``BASELINES`` that was tuned on
the prior, adapted to the noise. ``settings`` replace single parameters.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, cast

from pnpcm.baselines import BASELINES, Baseline
from pnpcm.core import Config, DataStep, has_adjoint, is_linear
from pnpcm.errors import ArgumentError, PnPCMError, UnknownNameError
from pnpcm.names import count_of
from pnpcm.operators.traits import traits_of
from pnpcm.presets import PRESETS, Preset, load_preset
from pnpcm.problems import Problem, Task, samples_image
from pnpcm.recon.options import Options
from pnpcm.recon.rule import rule
from pnpcm.schedules import linspace
from pnpcm.solvers import SOLVERS, DPIRConfig, PnPCMConfig

BLURS = ("blur", "gaussian-blur")
LINEAR = ("inpainting", "superresolution", *BLURS)
LEAST_INJECTION = 0.5
"""Noise scale above which a preset injects enough noise for samples and for perception."""
INJECTED = 0.5
"""Injected noise for samples, relative to the level at which the preset evaluates the prior."""
DETAIL = {"natural": ("superresolution", "gaussian-blur", "blur")}
"""Operators for which noise is injected for perception, by prior: it lowers LPIPS.

On 12 training images of 128² (6 faces, 6 photographs), share 1: enlarging by 4 at sigma_y 0.05 and
0.1 and by 2 at 0.1, blur of 5×5 at 0.05: LPIPS −1 to −14 %, PSNR −0.3 to +0.1 dB. Without noise of
y LPIPS is 2 to 3 % lower (by 4) or 2 to 27 % higher (by 2); in inpainting 5 to 13 % higher.
"""
NOISY = 0.05
"""sigma_y from which the share is 1; it is in proportion below."""
DENOISER_AHEAD = ("natural", "mri", "faces")
"""Priors whose denoiser is ahead of their consistency model in the same loop.

On training images: ``natural`` 0.3 to 0.8 dB in seven tasks of photographs (8 crops, N = 4);
``mri`` 0.7 and 1.4 dB at R = 4 and 8 (4 slices, N = 8 against 4); ``faces`` 0.4 to 1.0 dB in five
tasks (12 faces, each with its own presets, N = 8 against 4).
"""
DENOISER_STEPS = 8
"""Default number of steps with a denoiser: 0.1 to 0.4 dB (scans: 1.0 to 1.4) ahead of 4."""
TUNED_FOR = {
    "superresolution": ("superres-4",),
    "gaussian-blur": ("deblur-gauss",),
    "blur": ("deblur-gauss",),
    "inpainting": ("inpaint-70",),
    "jpeg": ("jpeg-5",),
    "nonlinear-blur": ("nonlinear-deblur",),
    "phase-retrieval": ("phase-retrieval",),
    "mri": ("r4", "r8"),
}
"""Family of operators → tasks of the fair tuning."""


@dataclass(frozen=True)
class Numbered:
    """A configuration and a description of its origin."""

    config: Config
    source: str


# method ------------------------------------------------------------------------------------------
def choose_method(problem: Problem, options: Options, kinds: tuple[str, ...]) -> tuple[str, str]:
    """The row of ``SOLVERS`` to use, and the reason. ``kinds``: available kinds of the prior."""
    if options.method is not None:
        return options.method, "given"
    if options.preset is not None:
        return options.preset_method, "method of the preset"
    leaves_open = options.steps is None and not options.settings
    if problem.is_denoising and leaves_open and "edm" in kinds and _wants_fidelity(options):
        return "dpir", "default for denoising: one call of the denoiser, ahead of PnP-CM"
    return "pnp-cm", "default"


def choose_kinds(method: str, prior: str, options: Options) -> tuple[str, ...]:
    """Kinds of the prior that ``method`` takes, the preferred one first; empty: any.

    For fidelity the loop of PnP-CM runs with the denoiser where that is better (see
    ``DENOISER_AHEAD``). Presets that the user names, samples and perception need the consistency
    model.
    """
    fidelity = options.preset is None and _wants_fidelity(options)
    if method == "pnp-cm" and prior in DENOISER_AHEAD and fidelity:
        return ("edm", "consistency", "vp")
    return SOLVERS[method].kinds


def blends(method: str, prior: str, problem: Problem, options: Options) -> bool:
    """Whether an aim between the two blends the denoiser (fidelity) with the consistency model."""
    between = 0 < options.perception < 1 and options.samples == 1 and options.preset is None
    return between and method == "pnp-cm" and (prior in DENOISER_AHEAD or problem.is_denoising)


def _wants_fidelity(options: Options) -> bool:
    return options.perception == 0 and options.samples == 1


def _steps(problem: Problem, options: Options, kind: str | None) -> int:
    """Number of steps; more of them with a denoiser, where the data step has a closed form."""
    traits = traits_of(problem.operator, 0.0)
    closed = is_linear(problem.operator) or traits.data_step["type"] == "CellMeanStep"
    more = kind == "edm" and closed and options.preset is None
    return options.steps or (max(DENOISER_STEPS, traits.steps) if more else traits.steps)


# numbers -----------------------------------------------------------------------------------------
def choose_numbers(
    task: Task,
    problem: Problem,
    method: str,
    prior: str,
    sigma_y: float,
    options: Options,
    *,
    kind: str | None = None,
) -> Numbered:
    """The parameters of ``method``. ``prior``: its name in presets and tuned rows; its ``kind``.

    Consistency models of ``DENOISER_AHEAD`` run with the parameters of the denoiser: on 6 training
    crops and ten tasks their LPIPS is .003 to .027 below that of the denoiser in eight, at most
    0.3 dB of PSNR behind; their own presets were worse in both in most. ``DETAIL`` adds noise.
    """
    if kind == "blend" or (prior in DENOISER_AHEAD and kind == "consistency"):
        kind = "edm"
    steps = _steps(problem, options, kind)
    if options.preset is not None:
        found = _given(task, problem, options)
    elif method == "pnp-cm" and problem.is_denoising and _wants_one_evaluation(options):
        found = _one_evaluation(2 * sigma_y)
    elif method == "pnp-cm":
        found = _pnp_cm(task, problem, prior, sigma_y, options, steps, kind)
    elif method == "dpir" and problem.is_denoising:
        found = _one_call(2 * sigma_y, options.steps)
    else:
        wanted = steps if options.method is None else options.steps  # a given method: its own
        found = _tuned(task, problem, method, prior, sigma_y, wanted)
    if not options.settings:
        return found
    words = ", ".join(f"{k}={v}" for k, v in options.settings.items())
    config = apply_settings(found.config, options.settings)
    return replace(found, config=config, source=f"{found.source}; set {words}")


def noiseless_inpainting(steps: int) -> PnPCMConfig:
    """PnP-CM with a denoiser where known pixels are exact (inpainting without noise).

    On 8 training crops 128² with ``natural``, 8 steps from the biharmonic extension are 1.1 to
    2.8 dB above it, for scratches, text, a hole of 24² and 30 to 90 % missing; 16 steps add at most
    0.1 dB. ρ is constant: with the small ρ of exact data the run oscillates.
    """
    start = PnPCMConfig.geometric(
        (0.3, 0.1), n=steps, noise_std=1.0, noise_scale=0.0, init="extension"
    )
    return replace(start, rhos=(0.3,) * steps, mu=(0.5,) * steps)


def own_operator(task: Task, problem: Problem, sigma_y: float, steps: int) -> PnPCMConfig:
    """PnP-CM for a linear operator that no preset was tuned for, from a smooth start.

    The levels decrease from 0.6 to the noise, ρ = ‖A‖² max(r, (noise/σ)²). Where A samples (a
    mask, a colour filter array, means of pixels) r = 0.6, where it blurs r = 0.003. Chosen among 60
    settings on 4 training crops of 96² and nine operators, sigma_y 0.01 and 0.05; scores:
    benchmarks/studies/own_operators.py.
    """
    conditions = task.conditions(problem, 2 * sigma_y)
    gain = max(conditions["gain"], 1e-6)
    noise = conditions["error_std"] / gain
    least = 0.6 if samples_image(problem.operator, problem.y, gain) else 0.003
    config = PnPCMConfig.geometric(
        (max(0.6, 1.5 * noise), max(0.03, noise)),
        n=steps,
        noise_std=1.0,
        noise_scale=0.0,
        **frame_for(problem, 2 * sigma_y) | {"init": "extension"},
    )
    rhos = tuple(gain**2 * max(least, (noise / s) ** 2) for s in config.sigmas)
    return replace(config, rhos=rhos, mu=(0.3,) * steps)


def _pnp_cm(
    task: Task,
    problem: Problem,
    prior: str,
    sigma_y: float,
    options: Options,
    steps: int,
    kind: str | None,
) -> Numbered:
    operator, own = problem.operator, _own_presets(task, prior, kind)
    linear = has_adjoint(operator) and not problem.y.is_complex()
    if options.perception == 1 and options.samples == 1:
        given = _exact(PRESETS, task, prior, sigma_y, "perception", options.steps)
        if given is not None:
            return given
    if kind == "edm" and sigma_y == 0 and traits_of(operator, 0.0).noise == "exact":
        found = Numbered(noiseless_inpainting(steps), "levels for known pixels without noise")
    elif linear and not _family(own, task):
        made = own_operator(task, problem, sigma_y, steps)
        found = Numbered(made, "levels for an operator without presets")
    else:
        exact = _exact(own, task, prior, sigma_y, "fidelity", steps)
        found = exact or _ruled(own, task, problem, prior, sigma_y, steps)
    config = cast(PnPCMConfig, found.config)
    several, share = options.samples > 1, _share(task, prior, sigma_y, options)
    injects = config.noise_scale >= LEAST_INJECTION or "noise_scale" in options.settings
    if share == 0 or injects:
        return found
    why = "so that samples differ" if several else "for the aim"
    source = f"{found.source}; injected noise of {share:g} × the level of the prior {why}"
    return replace(found, config=with_injection(config, share), source=source)


def _share(task: Task, prior: str, sigma_y: float, options: Options) -> float:
    """Noise to inject, for samples or for the aim, relative to the level that the prior is told."""
    if options.samples > 1:
        return INJECTED
    if prior not in DENOISER_AHEAD:
        return INJECTED * options.perception
    detail = options.perception == 1 and task.operator_name in DETAIL.get(prior, ())
    return min(1.0, sigma_y / NOISY) if detail else 0.0


def with_injection(config: PnPCMConfig, share: float) -> PnPCMConfig:
    """The same run with injected noise of ``share`` times the level t_k that the prior is told.

    Independent noises add by their squares, so the prior is told √(1 + share²) t_k: injected noise
    that it is not told of would remain in the result.
    """
    return replace(
        config,
        sigmas=tuple(share * t for t in config.told),
        deltas=(math.sqrt(1 + share**2) / share - 1,) * config.n_steps,
        noise_scale=1.0,
        family="explicit",
    )


def _given(task: Task, problem: Problem, options: Options) -> Numbered:
    preset, steps = cast(str | Path, options.preset), options.steps
    if str(preset) in BASELINES:
        config: Any = BASELINES[str(preset)].solver
        if steps is not None:
            config = _with_steps(config, options.preset_method, steps)
        return Numbered(config, f"row {preset}")
    if isinstance(preset, str) and preset in PRESETS:
        row, name = PRESETS[preset], f"preset {preset}"
    elif Path(preset).suffix == ".json":
        row, name = load_preset(Path(preset)), f"preset file {preset}"
    else:
        row, name = PRESETS[str(preset)], ""  # raises, with the nearest name
    _check_reference(row, name, task, problem)
    if steps is None:
        return Numbered(row.solver, name)
    if options.step_rule == "released":
        if row.solver.family != "ddpm":
            raise ArgumentError(
                f"step_rule is 'released', which is the paper's, but {name} has a schedule of "
                f"family {row.solver.family!r}; leave step_rule out"
            )
        name = f"{name}, with the released code's schedule of {steps} steps"
    return Numbered(row.solver.with_steps(steps, rule=options.step_rule or "ends"), name)


def notes_on_preset(task: Task, options: Options) -> list[str]:
    """A sentence if the preset that the user named is for another kind of operator."""
    name = str(options.preset)
    if name not in PRESETS or PRESETS[name].operator == task.operator_name:
        return []
    return [f"preset {name} is for {PRESETS[name].operator}, not for {task.operator_name}"]


def _check_reference(row: Preset, name: str, task: Task, problem: Problem) -> None:
    """Refuse a preset of the released code's operator for any other operator."""

    def holds(key: str) -> bool:
        own = task.options.get(key, getattr(problem.operator, key, None))
        return bool(own == row.reference[key])

    if not row.reference or (row.operator == task.operator_name and all(map(holds, row.reference))):
        return
    if row.operator != task.operator_name:
        raise ArgumentError(
            f"{name} is for the released code's {row.operator}, which does not exist for the task "
            f"{task.name} ({type(problem.operator).__name__}); choose a preset of this task"
        )
    flag = "--kernel-wizard FILE" if "network" in row.reference else "--reference-operator"
    raise ArgumentError(
        f"{name} is for the released code's {row.operator}, this is another one; simulate or "
        f"restore with {flag}, or use {name.removesuffix('-reference')} without -reference"
    )


def _exact(
    rows: Mapping[str, Preset], task: Task, prior: str, sigma_y: float, aim: str, steps: int | None
) -> Numbered | None:
    """The first preset of this problem and aim; ``steps=None``: with any number of steps."""
    for name, row in rows.items():
        if (
            (row.prior, row.operator, row.aim) == (prior, task.operator_name, aim)
            and dict(row.options) == task.options
            and math.isclose(row.sigma_y, sigma_y, rel_tol=0.05)
            and steps in (None, row.solver.n_steps)
        ):
            return Numbered(row.solver, f"preset {name}")
    return None


def _ruled(
    own: Mapping[str, Preset],
    task: Task,
    problem: Problem,
    prior: str,
    sigma_y: float,
    steps: int,
) -> Numbered:
    conditions = task.conditions(problem, 2 * sigma_y)
    rows, family = _family(own, task), task.operator_name
    if not rows:
        fidelity = [p for p in own.values() if p.aim == "fidelity"]
        family = _nearest_family(fidelity, conditions, prior)
        rows = [p for p in fidelity if p.operator == family]
    frame = frame_for(problem, 2 * sigma_y)
    alike = [p for p in rows if type(p.solver.data_step) is type(frame["data_step"])]
    rows = alike or rows
    config, outside = rule(rows, conditions, steps, **frame)
    source = f"rule from {count_of(len(rows), 'preset')} of {rows[0].prior}/{family}"
    return Numbered(config, f"{source}; {outside}" if outside else source)


def _one_call(noise_std: float, steps: int | None) -> Numbered:
    """DPIR started at y: one step is D(y, noise_std)."""
    level = max(noise_std, 0.002)
    n = steps or 1
    config = DPIRConfig(n_steps=n, sigma_start=level, sigma_end=level, lam=1.0, noise_std=level)
    return Numbered(config, "one call of the denoiser at the level of the noise")


def _wants_one_evaluation(options: Options) -> bool:
    """Denoising for perception without other wishes: see :func:`_one_evaluation`."""
    open_steps = options.steps is None and not options.settings
    return options.perception > 0 and options.samples == 1 and open_steps


def _one_evaluation(noise_std: float) -> Numbered:
    """PnP-CM in one step without injected noise: f(y, noise_std), since ρ is small and z is y.

    On 6 training crops it is ahead of four steps with injected noise in PSNR and LPIPS at sigma_y
    0.05, 0.1 and 0.2: `natural` by 0.9 to 1.7 dB and .05 to .09, `faces` by 0.6 to 7.5 dB and .00
    to .44.
    """
    level = max(noise_std, 0.002)
    config = PnPCMConfig(sigmas=(level,), deltas=(0.0,), rhos=(1e-6,), noise_scale=0.0)
    return Numbered(config, "one call of the prior at the level of the noise")


def _tuned(
    task: Task, problem: Problem, method: str, prior: str, sigma_y: float, steps: int | None
) -> Numbered:
    """The tuned row of the method for this family of operators, adapted to the problem."""
    conditions = task.conditions(problem, 2 * sigma_y)
    family = task.operator_name
    if family not in TUNED_FOR:
        family = _nearest_family(_own_presets(task, prior, None).values(), conditions, prior)
    row = _row(method, prior, family, problem)
    frame = frame_for(problem, 2 * sigma_y)
    config = fit_noise(row.solver, conditions["error_std"])
    known = {f.name for f in fields(config)}
    config = replace(config, **{k: v for k, v in frame.items() if k in known and k != "init"})
    if steps is not None:
        config = _with_steps(config, method, steps)
    return Numbered(config, f"tuned row {row.name}, adapted to the noise")


def _with_steps(config: Config, method: str, steps: int) -> Config:
    if isinstance(config, PnPCMConfig):
        return config.with_steps(steps)
    if "n_steps" not in {f.name for f in fields(config)}:
        raise ArgumentError(
            f"steps is {steps}, but the number of evaluations of {method} is fixed; leave steps out"
        )
    changed: Any = config
    return cast(Config, replace(changed, n_steps=steps))


def _row(method: str, prior: str, family: str, problem: Problem) -> Baseline:
    """The row with the most trials; for scans the row of the nearest acceleration."""
    tasks = TUNED_FOR[family]
    if family == "mri":
        acceleration = problem.operator.preset_options["acceleration"]
        tasks = (min(tasks, key=lambda t: abs(math.log(int(t[1:]) / acceleration))),)
    own = [b for b in BASELINES.values() if b.method == method and b.task in tasks]
    domain = prior if any(b.tuned_on == prior for b in own) else None
    domain = domain or ("mri" if family == "mri" else "natural")
    rows = [b for b in own if b.tuned_on == domain]
    if not rows:
        raise ArgumentError(
            f"method {method!r} has no tuned numbers for {family} and the prior {prior!r}; "
            "choose another method, or call its solver in Python with your own configuration"
        )
    return max(rows, key=lambda b: int(b.origin.partition("@")[2] or 12))


def fit_noise(config: Config, noise_std: float) -> Config:
    """``config`` for another noise on y; a tuned last level is scaled with the noise."""
    values = {f.name: getattr(config, f.name) for f in fields(config)}
    if "noise_std" not in values:
        return config
    changes: dict[str, Any] = {"noise_std": noise_std}
    before, end = values["noise_std"], values.get("sigma_end")
    if end is not None and before > 0:
        scaled = end * math.sqrt(noise_std / before)
        changes["sigma_end"] = min(values["sigma_start"], max(scaled, 0.002))
    return replace(config, **changes)


def _own_presets(task: Task, prior: str, kind: str | None) -> dict[str, Preset]:
    """Tuned presets of the prior, else of the shipped prior of the domain.

    With a denoiser (``kind`` "edm") those tuned with it, if the task's operator has any: for
    motion blur the presets of the consistency model are ahead of those of Gaussian blurs.
    """
    tuned = {name: p for name, p in PRESETS.items() if p.conditions}
    domain = prior
    if all(p.prior != prior for p in tuned.values()):
        domain = "mri" if task.operator_name == "mri" else "natural"
    own = {name: p for name, p in tuned.items() if p.prior == domain}
    for_denoiser = {n: p for n, p in own.items() if p.kind == "edm"}
    if kind == "edm" and any(p.operator == task.operator_name for p in for_denoiser.values()):
        return for_denoiser
    return {name: p for name, p in own.items() if p.kind != "edm"}


def _family(own: Mapping[str, Preset], task: Task) -> list[Preset]:
    """The presets of the task's family of operators that the rule is fitted to."""
    kinds = BLURS if task.operator_name in BLURS else (task.operator_name,)
    return [p for p in own.values() if p.aim == "fidelity" and p.operator in kinds]


def _nearest_family(own: Iterable[Preset], conditions: Mapping[str, float], prior: str) -> str:
    """The linear family whose operators measure a similar share of the image (custom operators)."""
    own = list(own)
    linear = {k: [p for p in own if p.operator == k] for k in LINEAR}
    near = {
        k: abs(
            sum(math.log(p.conditions["seen"]) for p in rows) / len(rows)
            - math.log(conditions["seen"])
        )
        for k, rows in linear.items()
        if rows
    }
    if not near:
        raise ArgumentError(
            f"there is no preset to derive parameters from for the prior {prior!r}; "
            "run pnpcm tune and give its file as preset"
        )
    return min(near, key=lambda k: near[k])


def frame_for(problem: Problem, noise_std: float) -> dict[str, Any]:
    """Parameters that the operator determines: data step, start, clamping."""
    traits = traits_of(problem.operator, noise_std)
    step = cast(DataStep, Config.from_dict(dict(traits.data_step)))
    return {"data_step": step, "init": traits.init, "clamp": traits.clamp}


# settings ----------------------------------------------------------------------------------------
ENDS = {"sigma": "sigmas", "rho": "rhos", "delta": "deltas"}


def apply_settings(config: Config, settings: Mapping[str, Any]) -> Config:
    """``config`` with some numbers replaced, see :func:`_applied`."""
    try:
        return _applied(config, settings)
    except PnPCMError:
        raise
    except (TypeError, ValueError, ArithmeticError) as error:
        words = ", ".join(f"{name}={value}" for name, value in settings.items())
        raise ArgumentError(
            f"settings is {words}, but a value is not of the kind that is needed ({error}); give "
            "numbers, e.g. rho_start=0.1"
        ) from error


def _applied(config: Config, settings: Mapping[str, Any]) -> Config:
    """``config`` with some numbers replaced.

    Fields of the configuration (``sigmas``, ``mu``, …) and of its data step (``n_iter``, …); for
    PnP-CM also ``delta`` for all steps, and the ends ``sigma_start``, ``sigma_end``, ``rho_start``,
    ``rho_end``, ``delta_start``, ``delta_end``: the change at the ends is interpolated between
    them, for σ and ρ on a logarithmic scale.
    """
    own = {f.name for f in fields(config)} - {"data_step"}
    step = getattr(config, "data_step", None)
    inner = set() if step is None else {f.name for f in fields(step)}
    is_pnp_cm = isinstance(config, PnPCMConfig)
    ends = {f"{name}_{end}" for name in ENDS for end in ("start", "end")} if is_pnp_cm else set()
    known = own | inner | ends | ({"delta"} if is_pnp_cm else set())
    for key in settings:
        if key not in known:
            raise UnknownNameError("hyperparameter", key, known)
    changes: dict[str, Any] = {key: settings[key] for key in own & settings.keys()}
    for name in ("sigmas", "rhos", "deltas"):
        if name in changes and not isinstance(changes[name], tuple):
            changes[name] = (changes[name],)
    if isinstance(config, PnPCMConfig) and "delta" in settings:
        changes["deltas"] = (settings["delta"],) * config.n_steps
    changed: Any = replace(config, **changes)
    for name, target in ENDS.items() if is_pnp_cm else ():
        given = [settings.get(f"{name}_{end}") for end in ("start", "end")]
        if given != [None, None]:
            values = _move(getattr(changed, target), given, name, log=name != "delta")
            changed = replace(changed, **{target: values})
    steps = {key: settings[key] for key in (inner - own) & settings.keys()}
    if steps and step is not None:
        changed = replace(changed, data_step=replace(step, **steps))
    result: Config = changed
    return result


def _move(
    values: tuple[float, ...], given: list[Any], name: str, *, log: bool
) -> tuple[float, ...]:
    """``values`` with new ends; the change at the ends is spread linearly over the steps."""
    start, end = (
        values[i] if new is None else float(new) for i, new in zip((0, -1), given, strict=True)
    )
    if log and min(start, end) <= 0:
        raise ArgumentError(f"{name}_start and {name}_end must be positive, got {start}, {end}")
    to, back = (math.log, math.exp) if log else (float, float)
    if len(values) == 1:
        return (start if given[0] is not None else end,)
    shift = linspace(to(start) - to(values[0]), to(end) - to(values[-1]), len(values))
    return tuple(back(to(v) + s) for v, s in zip(values, shift, strict=True))
