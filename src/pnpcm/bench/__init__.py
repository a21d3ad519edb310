"""Benchmarks: specs, the rows they compute, their store, statistics and reports."""

from pnpcm.bench.run import bench
from pnpcm.bench.spec import Spec, read_spec
from pnpcm.bench.store import Store

__all__ = ["Spec", "Store", "bench", "read_spec"]
