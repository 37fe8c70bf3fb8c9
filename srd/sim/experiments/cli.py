"""The command `srd sim`; srd finds it by the entry point `srd.commands`."""

from __future__ import annotations

from pathlib import Path

import click

from netns.base.files import write_whole
from netns.base.options import Duration
from netns.base.output import print_json
from netns.base.tables import console, print_table
from netns.errors import LabError
from srd.sim.errors import SimulationError
from srd.sim.experiments import figures, parquet
from srd.sim.experiments.experiment import Experiment, Result, run
from srd.sim.experiments.fabric import read_fabric
from srd.sim.experiments.inputs import experiment_of
from srd.sim.experiments.workload import NOTATION
from srd.sim.transports import TRANSPORTS

_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command(name="sim")
@click.argument("topology")
@click.option("--workload", default="permutation", show_default=True, metavar="WORKLOAD", help=f"{NOTATION}.")
@click.option("--plan", type=_FILE, metavar="FILE", help="Failures and changes of links, as `srd-lab run` plays them.")
@click.option("--transport", type=click.Choice(list(TRANSPORTS)), default="srd", show_default=True)
@click.option("--controller", metavar="MODULE:CLASS", help="SRD's congestion controller, instead of the default.")
@click.option("--paths", type=click.IntRange(1), metavar="N", help="SRD's source ports, instead of the default.")
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), default=1, show_default=True, metavar="N")
@click.option(
    "--limit",
    "limit_s",
    type=Duration(least_s=1e-6, most_s=3600.0),
    default=1.0,
    help="Virtual time after which flows are given up.  [default: 1s]",
)
@click.option("--flows", "shows_flows", is_flag=True, help="Print every flow, too.")
@click.option("--plot", type=_FILE, metavar="PNG", help="Draw slowdowns and the busiest links.")
@click.option(
    "--parquet",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Write flows.parquet and links.parquet (the series of each link) there.",
)
@click.option("-J", "--json", "as_json", is_flag=True, help="Print figures, flows and counters of links as JSON.")
def sim(
    *,
    topology: str,
    workload: str,
    plan: Path | None,
    transport: str,
    controller: str | None,
    paths: int | None,
    seed: int,
    limit_s: float,
    shows_flows: bool,
    plot: Path | None,
    directory: Path | None,
    as_json: bool,
) -> None:
    """Simulate flows on a network in virtual time: how long each takes, and what the links do.

    TOPOLOGY is a file (docs/fabric.md), one of htsim's (NAME.topo), or a built-in one, such as incast48, clos128 or
    clos1024. The same command gives the same result. The exit status is 1 if some flow was not complete.
    """
    try:
        if directory is not None:
            parquet.require()
        experiment = experiment_of(
            read_fabric(topology),
            workload=workload,
            plan=plan,
            transport=transport,
            controller=controller,
            paths=paths,
            seed=seed,
            limit_s=limit_s,
        )
        result = run(experiment)
        title = f"{workload} on {experiment.topology.name}, {transport}, seed {seed}"
        _write(experiment, result, title=title, plot=plot, directory=directory)
    except (LabError, SimulationError) as error:
        raise click.ClickException(str(error)) from None
    found = figures.document(experiment, result)
    if as_json:
        print_json(found)
    else:
        _print(title, experiment, result, shows_flows=shows_flows)
    lacking = len(experiment.flows) - int(found["figures"]["flows_complete"])
    if lacking:
        raise click.ClickException(f"{lacking} of {len(experiment.flows)} flows were not complete after {limit_s:g} s")


def _write(experiment: Experiment, result: Result, *, title: str, plot: Path | None, directory: Path | None) -> None:
    if directory is not None:
        parquet.write(directory / "flows.parquet", figures.flow_rows(experiment, result), columns=parquet.FLOWS)
        parquet.write(directory / "links.parquet", figures.link_rows(result), columns=parquet.LINKS)
    if plot is not None:
        try:
            from srd.sim.experiments.plots import picture  # noqa: PLC0415 - an extra, and half a second
        except ModuleNotFoundError as error:
            raise SimulationError(
                f"--plot needs {error.name}; install it, in the checkout: pip install '.[report]'"
            ) from None
        try:
            write_whole(plot, picture(experiment, result, title=title))
        except OSError as error:
            raise SimulationError(f"--plot {plot}: {error.strerror}; choose another place") from error


def _print(title: str, experiment: Experiment, result: Result, *, shows_flows: bool) -> None:
    found, out = figures.figures(experiment, result), console()
    out.print(f"{title}; settings for {result.settings}")
    out.print(f"{found['flows_complete']} of {found['flows']} flows complete, {found['packets_lost']} packets lost")
    if "last_us" in found:
        out.print(f"the last one after {found['last_us']:,.1f} us, {found['last_over_ideal_ratio']:.3f} of the ideal")
    out.print()
    print_table(figures.summary_table(found))
    out.print()
    print_table(figures.links_table(result))
    if shows_flows:
        out.print()
        print_table(figures.flows_table(figures.flow_rows(experiment, result)))
    for line in result.failures:
        out.print(line)
