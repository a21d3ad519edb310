"""A benchmark on a SLURM cluster through dask-jobqueue: python slurm_cluster.py SPEC OUT.

Runs on a login node: it submits jobs with workers, which compute rows until none is left, and
writes the store itself. Set the partition, the account and the sizes for your site below. PBS: the
class is PBSCluster with the same arguments. The file is an example, pnpcm does not import it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

JOBS = 10
"""Jobs in the queue at most; as many as there are rows to compute."""

SETTINGS: dict[str, Any] = {
    "queue": "compute",
    "account": "my-project",
    "cores": 16,
    "processes": 16,  # one thread per worker: rows do not depend on the number of cores
    "memory": "32GB",  # 1 to 2 GB per process for images of 256×256 pixels
    "walltime": "04:00:00",
    "job_script_prologue": [
        "source ~/pnpcm/.venv/bin/activate",
        "export OMP_NUM_THREADS=1 OMP_WAIT_POLICY=PASSIVE",
    ],
}


def main(spec: str, out: str) -> None:
    """Compute the rows of a spec on workers that SLURM starts and ends."""
    from dask_jobqueue import SLURMCluster

    with SLURMCluster(**SETTINGS) as cluster:
        cluster.adapt(minimum_jobs=0, maximum_jobs=JOBS)
        run(cluster, Path(spec), Path(out))


def run(cluster: Any, spec: Path, out: Path) -> None:
    """Compute the missing rows of a spec on any cluster of dask."""
    from pnpcm.bench import bench, read_spec

    with cluster.get_client() as client:
        bench(
            read_spec(spec),
            out,
            client=client,
            watch=lambda progress: print(f"{progress.done} of {progress.total} rows", flush=True),
        )


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python slurm_cluster.py SPEC OUT")
    main(*sys.argv[1:])
