"""The specs of benchmarks/specs: rows of the comparison that must be there."""

from pathlib import Path
from typing import Any

from pnpcm import PRESETS
from pnpcm.baselines import BASELINES, LINEAR, NONLINEAR, SCANS
from pnpcm.bench import Spec, read_spec
from pnpcm.recon.parameters import apply_settings
from pnpcm.solvers import DPnPConfig, PnPCMConfig, PnPDMConfig
from rows import check_rows

FILES = Path(__file__).parents[2] / "benchmarks/specs"
SPECS = {
    path.stem: read_spec(path)
    for path in sorted(FILES.glob("*.yaml"))
    if not path.stem.endswith(".expected")
}
CONTESTS = {prior: SPECS[f"contest-{prior}"] for prior in ("faces", "natural", "mri")}
PHOTOS = ("faces", "natural")


def rows_of(spec: Spec, prior: str) -> list[tuple[str, str, str]]:
    """(method, task, preset) of the methods with a preset and no changed numbers."""
    return [
        (name, task, preset)
        for name, row in spec.methods.items()
        for task in spec.tasks
        if row.serves(task) and not row.settings and (preset := row.preset_for(prior, task))
    ]


def config(spec: Spec, method: str, prior: str, task: str) -> Any:
    """The numbers of a method with a preset."""
    row = spec.methods[method]
    name = str(row.preset_for(prior, task))
    source: Any = BASELINES[name] if name in BASELINES else PRESETS[name]
    return apply_settings(source.solver, row.settings)


def test_the_contest_runs_each_tuned_row_once_and_states_its_trials() -> None:
    found: dict[str, list[int | None]] = {}
    for prior, spec in CONTESTS.items():
        for name, _, preset in rows_of(spec, prior):
            found.setdefault(preset, []).append(spec.methods[name].trials)
    tuned = [row for row in BASELINES.values() if row.tuned_on is not None]

    def check(row: Any) -> None:
        assert found[row.name] == [int(row.origin.partition("@")[2] or 12)]

    check_rows(((row.name, row) for row in tuned), check)


def test_published_numbers_of_pnp_cm_are_run_on_all_tasks() -> None:
    for prior in PHOTOS:
        found = {preset for _, _, preset in rows_of(CONTESTS[prior], prior)}
        assert found >= {f"pnp-cm/official/{task}" for task in LINEAR + NONLINEAR}
    scans = {preset for _, _, preset in rows_of(CONTESTS["mri"], "mri")}
    assert scans >= {f"pnp-cm/fastmri/{task}" for task in SCANS}
    for task in LINEAR + NONLINEAR:
        published = BASELINES[f"pnp-cm/official/{task}"].solver
        assert isinstance(published, PnPCMConfig)
        assert published.noise_scale == 1.0


def test_slow_methods_have_their_published_length_in_a_linear_and_a_nonlinear_task() -> None:
    least = {"dps": 1000, "dpnp": 2923, "pnp-dm": 1491}  # PnP-DM in phase retrieval: 1491
    for prior in PHOTOS:
        for method, nfe in least.items():
            tasks = {
                task
                for name, task, preset in rows_of(CONTESTS[prior], prior)
                if preset.startswith(f"{method}/official/")
                and config(CONTESTS[prior], name, prior, task).nfe >= nfe
            }
            assert tasks & set(LINEAR), (prior, method)
            assert tasks & set(NONLINEAR), (prior, method)
    mri = CONTESTS["mri"]
    for task in SCANS:
        dps = config(mri, "DPS, published", "mri", task)
        assert (dps.nfe, dps.zeta) == (1000, 0.85)
        dpnp = config(mri, "DPnP, full length", "mri", task)
        assert (dpnp.density, dpnp.warm_start) == (DPnPConfig().density, DPnPConfig().warm_start)
        pnp_dm = config(mri, "PnP-DM, full length", "mri", task)
        assert pnp_dm.n_iterations == PnPDMConfig().n_iterations == 100
        assert pnp_dm.decay == PnPDMConfig().decay == 0.9


def test_half_the_noise_is_run_with_the_methods_that_need_no_network_per_task() -> None:
    spec = SPECS["noise"]
    assert spec.sigma_y == (0.025,)
    compared = {row.method for row in BASELINES.values()}
    assert compared >= {"pnp-cm", "dpir", "dps", "ddrm", "cm4ir", "tv"}
    assert {row.method for row in spec.methods.values()} >= compared - {"cosign"}


def test_the_cells_of_the_ablation_differ_in_injection_and_momentum_only() -> None:
    def changed(spec: Spec, method: str, prior: str, task: str) -> dict[str, Any]:
        full = config(spec, "injection and momentum", prior, task).to_dict()
        own = config(spec, method, prior, task).to_dict()
        return {name: value for name, value in own.items() if value != full[name]}

    for name, prior in (("ablation", "faces"), ("ablation", "natural"), ("ablation-mri", "mri")):
        for task in SPECS[name].tasks:
            full = config(SPECS[name], "injection and momentum", prior, task)
            assert full.noise_scale == 1.0
            assert full.mu > 0
            assert changed(SPECS[name], "injection", prior, task) == {"mu": 0.0}
            assert changed(SPECS[name], "momentum", prior, task) == {"noise_scale": 0.0}
            both = {"mu": 0.0, "noise_scale": 0.0}
            assert changed(SPECS[name], "neither", prior, task) == both


def test_tuned_cells_of_the_ablation_have_the_switches_of_their_names() -> None:
    switches = {
        "injection and momentum": (1.0, True),
        "injection": (1.0, False),
        "momentum": (0.0, True),
        "neither": (0.0, False),
    }
    tuned = {name: spec for name, spec in SPECS.items() if name.startswith("ablation-tuned-")}
    assert tuned
    for spec in tuned.values():
        trials = {row.trials for row in spec.methods.values()}
        assert len(trials) == 1  # the same budget for all
        for name, row in spec.methods.items():
            (task,), (prior,) = row.tasks, spec.priors
            scale, momentum = switches[name.partition(";")[0]]
            own = config(spec, name, prior, task)
            assert own.noise_scale == scale
            assert momentum or own.mu == 0
            assert own.n_steps == row.steps[0]
