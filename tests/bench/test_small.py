"""benchmarks/specs/small.yaml reaches the means of its file of expected values."""

from pathlib import Path

from pnpcm.bench import bench, read_spec
from pnpcm.bench.run import finished
from pnpcm.bench.verify import read_expected, verify
from pnpcm.metrics.lpips import available

SPECS = Path(__file__).parents[2] / "benchmarks/specs"


def test_the_small_benchmark_has_its_expected_means(tmp_path: Path) -> None:
    spec, path = read_spec(SPECS / "small.yaml"), SPECS / "small.expected.yaml"
    renew = path.read_text(encoding="utf-8").splitlines()[0]
    assert renew.startswith("# Renew with: pnpcm bench benchmarks/specs/small.yaml ")
    rows = finished(spec, bench(spec, tmp_path))
    compared = verify(rows, read_expected(path))
    assert len(compared) == 24  # two tasks, three methods, four metrics
    outside = [one.message for one in compared if not one.ok]
    if not available():
        outside = [message for message in outside if "has no lpips" not in message]
    assert not outside, "\n".join([*outside, renew])
