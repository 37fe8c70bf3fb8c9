"""The command `srd sim`; srd finds it by the entry point `srd.commands`."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Final

import click
from click.core import ParameterSource

from netns.base.files import write_whole
from netns.base.options import Duration, json_option
from netns.base.output import print_json
from netns.base.tables import console, print_table, table
from netns.errors import LabError
from srd.sim.errors import SimulationError
from srd.sim.experiments import figures, parquet
from srd.sim.experiments.experiment import Experiment, ExperimentResult, experiment_of, run
from srd.sim.experiments.fabric import read_fabric
from srd.sim.experiments.scenario import is_scenario, read_scenario
from srd.sim.experiments.workload import NOTATION
from srd.sim.roce import command as roce
from srd.sim.roce import suite
from srd.sim.roce.command import plotting
from srd.sim.transports import TRANSPORTS

ROCE: Final = "roce"
"""Given instead of a topology."""
ROCE_TAKES: Final = ("topology", "scenario", "transport", "seed", "plot", "as_json")
SCENARIO_TAKES: Final = ("topology", "seed", "as_json")
_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command(name="sim")
@click.argument("topology")
@click.option("--workload", default="permutation", show_default=True, metavar="WORKLOAD", help=f"{NOTATION}.")
@click.option("--plan", type=_FILE, metavar="FILE", help="Failures and changes of links, as `srd-lab run` plays them.")
@click.option(
    "--transport", type=click.Choice(list(TRANSPORTS)), help="What carries the flows.  [default: srd; of roce: all]"
)
@click.option("--controller", metavar="MODULE:CLASS", help="SRD's congestion controller, instead of the default.")
@click.option("--paths", type=click.IntRange(1), metavar="N", help="SRD's source ports, instead of the default.")
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), default=1, show_default=True, metavar="N")
@click.option(
    "--timeout",
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
@click.option("--scenario", type=click.Choice(list(suite.SCENARIOS)), help="Of roce: this one only, all its figures.")
@json_option
@click.pass_context
def sim(
    context: click.Context,
    *,
    topology: str,
    workload: str,
    plan: Path | None,
    transport: str | None,
    controller: str | None,
    paths: int | None,
    seed: int,
    limit_s: float,
    shows_flows: bool,
    plot: Path | None,
    directory: Path | None,
    scenario: str | None,
    as_json: bool,
) -> None:
    """Simulate flows on a network in virtual time: how long each takes, and what the links do.

    TOPOLOGY is a file (docs/fabric.md), one of htsim's (NAME.topo), or a built-in one, such as incast48, clos128 or
    clos1024. The same command gives the same result. The exit status is 1 if some flow was not complete.

    A scenario instead of a TOPOLOGY has its own workload, and bounds: a file (srd/sim/experiments/scenario.py), or a
    built-in one: blackhole, ecn, fair, incast, incast-1000, incast-8192, jitter, long-fat, loss, permutation,
    slow-links, slow-path, unequal, wild. The exit status is 1 if a bound is missed. With `roce` it plays the scenarios
    of docs/roce.md by every transport: what pauses do to flows beside an incast, slow hosts, losses, deadlocks.
    """
    if topology == ROCE:
        _refuse_others(context, of=topology, taken=ROCE_TAKES)
        roce.play(scenario, transport=transport, seed=seed, plot=plot, as_json=as_json)
        return
    if scenario is not None:
        raise click.UsageError(f"--scenario is of roce: srd sim {ROCE} --scenario {scenario}")
    if is_scenario(topology):
        _refuse_others(context, of=topology, taken=SCENARIO_TAKES)
        _scenario(topology, seed=seed, as_json=as_json)
        return
    transport = transport or "srd"
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
    _show(title, experiment, result, shows_flows=shows_flows, as_json=as_json)


def _scenario(name: str, *, seed: int, as_json: bool) -> None:
    """Play a scenario, and say which bounds it meets."""
    try:
        scenario = read_scenario(name)
        found = scenario.figures(seed=seed)
        checks = scenario.checks(found)
    except (LabError, SimulationError) as error:
        raise click.ClickException(str(error)) from None
    if as_json:
        wanted = {each.figure: {"value": found[each.figure], "wanted": str(each), "met": met} for each, met in checks}
        print_json({"scenario": scenario.name, "seed": seed, "figures": found, "bounds": wanted})
    else:
        out = console()
        out.print(f"{scenario.name}: {scenario.happens}; seed {seed}\n")
        made = table("figure", "value", "bound", "", text=("bound", ""))
        judged = {each.figure: (str(each), "met" if met else "missed") for each, met in checks}
        for figure, value in found.items():
            made.add_row(figure, suite.shown(value), *judged.get(figure, ("", "")))
        out.print(made)
    missed = [f"{each.figure} {found[each.figure]:.4g}, wanted {each}" for each, met in checks if not met]
    if missed:
        raise click.ClickException("missed: " + "; ".join(missed))


def _refuse_others(context: click.Context, *, of: str, taken: Collection[str]) -> None:
    """Raise UsageError for an option that was given, and is not of those that are taken."""
    for each in context.command.params:
        given = context.get_parameter_source(each.name or "") is ParameterSource.COMMANDLINE
        if given and each.name not in taken:
            raise click.UsageError(f"{each.opts[0]}: {of} has its own; leave it out")


def _write(
    experiment: Experiment, result: ExperimentResult, *, title: str, plot: Path | None, directory: Path | None
) -> None:
    if directory is not None:
        parquet.write(directory / "flows.parquet", figures.flow_rows(experiment, result), columns=parquet.FLOWS)
        parquet.write(directory / "links.parquet", figures.link_rows(result), columns=parquet.LINKS)
    if plot is not None:
        with plotting(plot):
            from srd.sim.experiments.plots import picture  # noqa: PLC0415 - an extra, and half a second

            write_whole(plot, picture(experiment, result, title=title))


def _show(title: str, experiment: Experiment, result: ExperimentResult, *, shows_flows: bool, as_json: bool) -> None:
    """Print what came of an experiment. Raises ClickException if a flow was not complete."""
    found = figures.document(experiment, result)
    if as_json:
        print_json(found)
    else:
        _print(title, experiment, result, shows_flows=shows_flows)
    flows, complete = len(experiment.flows), int(found["figures"]["flows_complete"])
    if complete < flows:
        raise click.ClickException(
            f"{flows - complete} of {flows} flows were not complete after {experiment.limit_s:g} s"
        )


def _print(title: str, experiment: Experiment, result: ExperimentResult, *, shows_flows: bool) -> None:
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
