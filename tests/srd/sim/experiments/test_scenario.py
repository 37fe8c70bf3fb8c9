"""srd.sim.experiments.scenario: files say what is played; figures are by hand what they should be."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from scripts.benches.wild.links import bottleneck
from srd.sim.errors import SimulationError
from srd.sim.experiments.cli import sim
from srd.sim.experiments.errors import ExperimentError
from srd.sim.experiments.experiment import Experiment
from srd.sim.experiments.incast import incast_ideal_us
from srd.sim.experiments.scenario import NAMES, is_scenario, read_scenario
from srd.sim.flows import Flow
from srd.sim.host import HostClock

INCAST = """\
happens: four senders
topology:
  leaf_spine:
    leaves: 2
    hosts_per_leaf: [4, 1]
    link: {delay: 5us, rate: 100gbit, limit: 64}
    host_link: {delay: 5us, rate: 100gbit, limit: 64}
workload: incast:4x200KB
bounds: [max_over_ideal_ratio <= 10, spread_ratio >= 1]
"""
STREAM = """\
happens: a stream
topology: {leaf_spine: {spines: 2, link: {delay: 0.5ms, rate: 250mbit}}}
stream: {source: h1, destination: h2, message: 64KiB, outstanding: 64}
warm_up: 50ms
time: 50ms
capacity: 500mbit
bounds: [capacity_fraction >= 0.5]
"""


def between(source: str, destination: str) -> str:
    """Return the stream with four hosts, and other ends."""
    text = STREAM.replace("spines: 2,", "spines: 2, hosts_per_leaf: 2,")
    return text.replace("source: h1, destination: h2", f"source: {source}, destination: {destination}")


def written(tmp_path: Path, text: str) -> str:
    (tmp_path / "mine.yaml").write_text(text)
    return str(tmp_path / "mine.yaml")


def ran(*arguments: str) -> Result:
    return CliRunner().invoke(sim, list(arguments))


def test_built_in__ones_are_read_and_in_the_help() -> None:
    help_text = " ".join(ran("--help").output.split()).replace("- ", "-")  # click wraps lines at hyphens, too
    assert f"built-in one: {', '.join(NAMES)}." in help_text
    assert all(read_scenario(name).bounds for name in NAMES)


def test_incast__ideal_by_hand() -> None:
    # 2 messages of 2 packets: 2 x (10,000 + 2 x 98) bytes at 100 Gbit/s; 3 links of 9,014 bytes and 4 x 5 us before.
    topology = read_scenario("incast").topologies(seed=1)["main"]
    flows = tuple(Flow(source, "h49", 10_000) for source in ("h1", "h13"))
    expected_us = 20 + 3 * 9014 * 8 / 100_000 + 2 * 10_196 * 8 / 100_000
    assert incast_ideal_us(Experiment(topology, flows), sink="h49") == pytest.approx(expected_us)


def test_incast__ideal_is_a_lower_bound(tmp_path: Path) -> None:
    figures = read_scenario(written(tmp_path, INCAST)).figures(seed=1)
    # netem rounds the time of each packet down to a nanosecond: 92 of them are up to 0.1 us of 87.
    assert 0.999 <= figures["max_over_ideal_ratio"] < 10
    assert figures["spread_ratio"] == pytest.approx(figures["max_us"] / figures["min_us"])
    assert figures["senders_done"] == 4


def test_incast__that_is_not_complete_is_no_measurement(tmp_path: Path) -> None:
    scenario = read_scenario(written(tmp_path, INCAST + "limit: 30us\n"))
    with pytest.raises(SimulationError, match=r"of 4 flows were complete in 3e-05 s$"):
        scenario.figures(seed=1)


@pytest.mark.compiled
def test_slow_path_and_loss__capacity_fractions() -> None:
    slow = read_scenario("slow-path").figures(seed=1, seconds=0.05)
    assert 0.5 < slow["capacity_fraction"] <= 1.02  # what was queued at the start of 50 ms may land in them
    assert slow["capacity_mbps"] == pytest.approx(1775 * 8916 / 9014)
    lossy = read_scenario("loss").figures(seed=1, seconds=0.05)
    fractions = {name: value for name, value in lossy.items() if name.startswith("capacity_fraction_")}
    assert len(fractions) == 4
    assert all(0.5 < value <= 1.05 for value in fractions.values())


@pytest.mark.compiled
def test_ecn__marks_keep_the_queue_short_and_lose_nothing() -> None:
    found = read_scenario("ecn").figures(seed=1, seconds=0.3)
    assert found["queue_ratio"] == found["mean_queue_ms"] / found["mean_queue_ms_unmarked"] < 0.75
    assert found["lost_fraction"] < 0.01 < found["lost_fraction_unmarked"]
    assert 0.93 < found["capacity_fraction"] < 1.05
    assert (found["marked_packets"] > 0, found["marked_packets_unmarked"]) == (True, 0)


def test_streams_of_messages__times_over_what_they_take_at_least(tmp_path: Path) -> None:
    # 1,000 bytes in one packet: 1,098 bytes on two links of 250 Mbit/s and 0.5 ms; hosts' links take no time.
    text = STREAM.replace("time: 50ms\n", "").replace("64KiB, outstanding: 64", "1000, outstanding: 1, messages: 3")
    text = text.replace("capacity_fraction >= 0.5", "median_over_ideal_ratio <= 1.01")
    found = read_scenario(written(tmp_path, text)).figures(seed=1)
    assert found["ideal_us"] == pytest.approx(1000 + 2 * 1098 * 8 / 250)
    # netem rounds the time of each packet down to a nanosecond
    assert 0.999999 <= found["median_over_ideal_ratio"] <= found["max_over_ideal_ratio"] < 1.01


def test_runs__change_the_stream_and_a_bound_is_of_the_worst(tmp_path: Path) -> None:
    runs = "runs: {one: {settings: {paths: 1}}, both: {stream: {source: [h1, h2], destination: [h3, h4]}}}\n"
    scenario = read_scenario(written(tmp_path, between("h1", "h3") + runs))
    found = scenario.figures(seed=1)
    assert found["goodput_mbps_one"] < 250 < found["goodput_mbps_both"]  # of two links with 250 Mbit/s
    assert found["jain_index_both"] > 0.5
    assert "jain_index_one" not in found
    assert found["capacity_fraction"] == found["capacity_fraction_one"] < found["capacity_fraction_both"]
    assert [met for _, met in scenario.checks(found)] == [True]


def test_every__posts_at_a_rate_and_all_must_arrive(tmp_path: Path) -> None:
    text = STREAM.replace("outstanding: 64", "every: 10ms").replace("capacity: 500mbit\n", "")
    text = text.replace("capacity_fraction >= 0.5", "spurious_fraction <= 0")
    found = read_scenario(written(tmp_path, text)).figures(seed=1)
    assert found["goodput_mbps"] == pytest.approx(64 * 1024 * 8 / 10_000, rel=0.21)  # one each 10 ms, five or six
    assert "capacity_fraction" not in found
    with pytest.raises(SimulationError, match=r"messages were not delivered within 1e-05 s$"):
        read_scenario(written(tmp_path, text.replace("10ms", "11ms") + "limit: 10us\n")).figures(seed=1)


def test_later__every_other_stream_begins_so_much_later(tmp_path: Path) -> None:
    both = between("[h1, h2]", "[h3, h4]")
    at_once = read_scenario(written(tmp_path, both)).figures(seed=1)
    later = read_scenario(written(tmp_path, both.replace("outstanding: 64", "outstanding: 64, later: 50ms")))
    found = later.figures(seed=1)
    assert found["jain_index"] < at_once["jain_index"]  # the one of h2 begins with the measurement


def test_links__one_direction() -> None:
    topology = read_scenario("jitter").topologies(seed=1)["10ms"]
    up, down = topology.link("leaf2-spine3").shape_ab, topology.link("leaf2-spine3").shape_ba
    assert up is not None
    assert (up.delay_us, up.jitter_us, up.limit_packets, down) == (50_000, 10_000, 1_000_000, None)


@pytest.mark.compiled
def test_jitter_and_fair__figures() -> None:
    found = read_scenario("jitter").figures(seed=1, seconds=0.1)
    assert found["spurious_fraction"] == max(found["spurious_fraction_1ms"], found["spurious_fraction_10ms"])
    shared = read_scenario("fair").figures(seed=1, seconds=0.0004)
    assert shared["jain_index"] == min(shared[f"jain_index_{flows}"] for flows in (2, 8, 32))
    assert 0 < shared["median_queue_bdp_2"] < shared["median_queue_bdp_32"] == shared["median_queue_bdp"]


def test_runs__change_links_by_pattern_and_the_seed_is_the_fabrics() -> None:
    runs = read_scenario("loss").topologies(seed=3)
    assert list(runs) == ["0.1pct", "1pct", "5pct", "10pct"]
    losses = {link.name: [shape and shape.loss_percent for shape in (link.shape_ab, link.shape_ba)] for link in
              runs["5pct"].links}  # fmt: skip
    assert losses["leaf2-spine3"] == [5.0, 5.0]
    assert losses["leaf1-spine3"] == [0.0, 0.0]
    assert {topology.seed for topology in runs.values()} == {3}


def test_runs__have_a_topology_of_their_own(tmp_path: Path) -> None:
    runs = "runs: {one: {}, three: {topology: {leaf_spine: {spines: 3}}, links: {leaf*: {rate: 10mbit}}}}\n"
    one, three = read_scenario(written(tmp_path, STREAM + runs)).topologies(seed=1).values()
    assert (len(one.spines), len(three.spines)) == (2, 3)
    rates = {link.shape_ab.rate_bps for link in three.links if link.shape_ab is not None}
    assert rates == {10_000_000}


def test_plan__of_a_stream_and_of_a_workload(tmp_path: Path) -> None:
    plan = "plan: [{at: 60ms, fail: spine1, for: 20ms}]\n"
    found = read_scenario(written(tmp_path, STREAM + plan)).figures(seed=1)
    assert found["failed_requests"] == 0
    assert found["messages"] > 30
    assert found["longest_gap_ms"] > 2
    (tmp_path / "faults.yaml").write_text("events: [{at: 5us, fail: spine1, for: 1ms}]")
    text = INCAST.replace("leaves: 2", "leaves: 2\n    spines: 1") + "plan: faults.yaml\n"
    later = read_scenario(written(tmp_path, text)).figures(seed=1)["last_us"]
    assert later > 1000 > read_scenario(written(tmp_path, text.replace("plan: ", "# "))).figures(seed=1)["last_us"]


def test_beside__tcp_takes_a_part_from_when_it_starts(tmp_path: Path) -> None:
    text = between("h1", "h3").replace("spines: 2", "spines: 1").replace("time: 50ms", "time: 200ms")
    text = text.replace("capacity: 500mbit", "capacity: 250mbit")
    shared = text + "beside: {source: h2, destination: h4, tcp: cubic}\n"
    alone = read_scenario(written(tmp_path, text)).figures(seed=1)
    found = read_scenario(written(tmp_path, shared)).figures(seed=1)
    assert "beside_mbps" not in alone
    assert found["capacity_fraction"] < 0.97 * alone["capacity_fraction"]
    assert found["beside_mbps"] + found["capacity_fraction"] * 250 == pytest.approx(250, rel=0.05)
    assert 0 <= found["beside_lost_fraction"] < 0.5
    late = read_scenario(written(tmp_path, shared.replace("tcp: cubic", "tcp: cubic, at: 240ms"))).figures(seed=1)
    assert late["beside_mbps"] < found["beside_mbps"] / 3


def test_clocks__that_are_wrong_change_little_and_are_set_in_the_measurement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[float] = []
    monkeypatch.setattr(HostClock, "step", lambda _self, by_s: steps.append(by_s))
    right = read_scenario(written(tmp_path, STREAM)).figures(seed=1)
    text = STREAM + "clocks: {h2: {offset: 1h, drift_ppm: 100, steps: [1s, -1s]}}\n"
    wrong = read_scenario(written(tmp_path, text)).figures(seed=1)
    assert steps == [1.0, -1.0]
    assert wrong != right
    assert wrong["goodput_mbps"] == pytest.approx(right["goodput_mbps"], rel=0.05)


@pytest.mark.compiled
def test_unequal_and_blackhole__figures() -> None:
    found = read_scenario("unequal").figures(seed=1, seconds=0.05)
    names = ("short_long", "mostly_long", "spread")
    assert found["unequal_capacity_fraction"] == min(found[f"capacity_fraction_{name}"] for name in names)
    found = read_scenario("blackhole").figures(seed=1)
    assert found["stall_rtts"] == pytest.approx(max(found["longest_gap_ms"] - 10, 0) / 2)
    assert 0 < found["repaired_s"] < 1


def test_wild__links_as_on_sockets() -> None:
    """The bottleneck of each run is that of the case `wild-lab`, which builds it for a lab."""
    topologies = read_scenario("wild").topologies(seed=3)
    runs = {
        "20ms_path": bottleneck(rate_bps=100_000_000, rtt_s=0.02, seed=3),
        "jitter": bottleneck(rate_bps=200_000_000, rtt_s=0.01, jitter_us=2000, seed=3),
        "jitter_20ms": bottleneck(rate_bps=100_000_000, rtt_s=0.02, jitter_us=4000, seed=3),
        "wan": bottleneck(rate_bps=100_000_000, rtt_s=0.1, seed=3),
        "wan_loss": bottleneck(rate_bps=100_000_000, rtt_s=0.1, loss_percent=1, seed=3),
        "satellite": bottleneck(rate_bps=20_000_000, rtt_s=0.6, seed=3),
    }
    assert {name: replace(topologies[name], name="wild") for name in runs} == runs


def test_command__says_which_bounds_are_met(tmp_path: Path) -> None:
    name = written(tmp_path, STREAM)
    done = ran(name, "--seed", "2")
    assert done.exit_code == 0, done.output
    line = next(line for line in done.output.splitlines() if line.startswith("capacity_fraction "))
    assert line.split()[2:] == [">=", "0.5", "met"]
    found = json.loads(ran(name, "--seed", "2", "-J").output)
    assert found["bounds"]["capacity_fraction"]["met"] is True
    assert found["figures"] == read_scenario(name).figures(seed=2)


def test_command__fails_when_a_bound_is_missed(tmp_path: Path) -> None:
    done = ran(written(tmp_path, STREAM.replace(">= 0.5", ">= 2")))
    assert done.exit_code == 1
    assert "Error: missed: capacity_fraction 0." in done.output
    assert done.output.endswith("wanted >= 2\n")


def test_command__has_no_other_options(tmp_path: Path) -> None:
    done = ran(written(tmp_path, STREAM), "--workload", "incast:1x1K")
    assert done.exit_code == 2
    assert "--workload: " in done.output


def test_a_topology_is_no_scenario(tmp_path: Path) -> None:
    assert is_scenario(written(tmp_path, STREAM))
    assert not is_scenario(written(tmp_path, "leaf_spine: {}\n"))
    assert not is_scenario("incast48")


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("time: 50ms\n", "", "time, stream.messages: give one of the two"),
        ("outstanding: 64", "outstanding: 64, messages: 2", "time, stream.messages: give one of the two"),
        ("outstanding: 64", "outstanding: 64, every: 1ms", "stream.outstanding, stream.every: give one of the two"),
        ("outstanding: 64", "outstanding: 64, later: 1s", "stream.later: 1 s is after the warm-up"),
        ("source: h1", "source: [h1, h1]", "stream: give sources, none twice, and one destination or as many"),
        ("destination: h2", "destination: h1", "stream: h1 is a source and a destination; take two hosts"),
        ("bounds: [", "runs: {a: {stream: {outstanding: -1}}}\nbounds: [", "outstanding: -1 should be greater than"),
        ("bounds: [", "runs: {a: {settings: {nothing: 1}}}\nbounds: [", "settings: "),
        ("time: 50ms\n", "time: 50\n", "time: "),
        ("time: 50ms\n", "time: [50ms]\n", "time: ['50ms'] is not a number with a unit"),
        ("capacity: 500mbit", "capacity: much", "capacity: 'much' is not"),
        ("time: 50ms", "time: 0s", "time: '0s' should be greater than 0"),
        ("warm_up: 50ms", "warm_up: -50ms", "warm_up: -50ms is before now"),
        ("source: h1", "source: h9", "stream: h9 is no host; there are h1, h2"),
        ("64KiB", "0", "stream.message: a flow of 0 bytes"),
        ("bounds: [", "workload: incast:1x1K\nbounds: [", "workload, stream: give one of the two"),
        ("bounds: [", "settings: {nothing: 1}\nbounds: [", "settings: "),
        ("bounds: [", "figures: {a: b c}\nbounds: [", "figures.a: 'b c' is no expression; write it with numbers"),
        ("bounds: [", "plan: [{at: 1s, fail: spine9}]\nbounds: [", "events[0].fail: spine9: neither a link nor a node"),
        ("bounds: [", "plan: none.yaml\nbounds: [", "none.yaml: No such file"),
        ("bounds: [", "beside: {source: h1, destination: h2, tcp: cubic}\nbounds: [", "beside: h1 has a stream"),
        ("bounds: [", "beside: {source: h9, destination: h2, tcp: cubic}\nbounds: [", "beside: h9 is no host"),
        ("bounds: [", "clocks: {h9: {drift_ppm: 1}}\nbounds: [", "clocks: h9 is no host"),
        (
            "bounds: [",
            "clocks: {h2: {offset: 9s, steps: [-1s, -70s]}}\nbounds: [",
            "clocks.h2: goes back to 62 s before",
        ),
        ("bounds: [", "clocks: {h2: {steps: [soon]}}\nbounds: [", "clocks.h2.steps[0]: 'soon'"),
        ("bounds: [", "runs: {a: {topology: null}}\nbounds: [", "topology.str: None should be"),
        ("bounds: [", "runs: {a: {links: {x*: {loss: 1%}}}}\nbounds: [", "links: x*: no link has such a name"),
        (">= 0.5", "is 0.5", "is no bound"),
    ],
)
def test_mistakes__are_one_line_with_the_file(tmp_path: Path, old: str, new: str, says: str) -> None:
    name = written(tmp_path, STREAM.replace(old, new))
    with pytest.raises(ExperimentError) as caught:
        read_scenario(name)
    assert str(caught.value).startswith(f"{name}: ")
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_figures__of_no_figure(tmp_path: Path) -> None:
    done = ran(written(tmp_path, STREAM + "figures: {a: nothing / capacity_mbps}\n"))
    assert done.exit_code == 1
    assert "figures.a: nothing is no figure; there are capacity_fraction, " in done.output


def test_figures__of_a_name_that_there_is(tmp_path: Path) -> None:
    done = ran(written(tmp_path, STREAM + "figures: {capacity_mbps: goodput_mbps}\n"))
    assert done.exit_code == 1
    assert "figures.capacity_mbps: there is such a figure; take another name" in done.output


def test_bounds__of_no_figure(tmp_path: Path) -> None:
    done = ran(written(tmp_path, STREAM.replace("[capacity_fraction", "[nothing")))
    assert done.exit_code == 1
    assert "bounds: nothing is no figure; there are capacity_fraction, " in done.output
