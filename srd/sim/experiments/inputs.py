"""What a command line or a cell of a grid names, as an experiment: files are read here, and nowhere later."""

from __future__ import annotations

from pathlib import Path

from netns.faults.schedule import read_schedule
from netns.topology.model import Topology
from srd.sim.experiments.experiment import Experiment
from srd.sim.experiments.fabric import host_bps
from srd.sim.experiments.htsim import read_matrix
from srd.sim.experiments.workload import made


def experiment_of(
    topology: Topology,
    *,
    workload: str,
    plan: Path | None = None,
    transport: str = "srd",
    controller: str | None = None,
    paths: int | None = None,
    seed: int = 1,
    limit_s: float = 1.0,
) -> Experiment:
    """Return the experiment on a topology of `read_fabric`; a workload is a notation or a file of htsim's.

    Raises LabError or ExperimentError, with what is wrong in one line.
    """
    if workload.endswith(".cm"):
        flows = read_matrix(Path(workload), hosts=topology.hosts)
    else:
        flows = made(workload, hosts=topology.hosts, host_bps=host_bps(topology), seed=seed)
    experiment = Experiment(
        topology=topology,
        flows=flows,
        transport=transport,
        plan=() if plan is None else read_schedule(plan, topology),
        controller=controller,
        paths=paths,
        seed=seed,
        limit_s=limit_s,
    )
    experiment.config()  # whose mistakes are the user's, and come before anything is simulated
    return experiment
