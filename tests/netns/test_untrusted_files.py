"""Every file that the lab's tools read, with some value replaced by one of another type: a one-line LabError.

A mutation puts `raw`, as YAML or JSON has it, in the place of any value or key of a valid document.
"""

from __future__ import annotations

import copy
import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

import netns.lab.state
from netns.backends.relay.spec import load_spec
from netns.errors import MAX_MESSAGE, LabError
from netns.faults.schedule import read_schedule
from netns.inventory.fabric_layers import nodes_of
from netns.inventory.node_files import read_nodes
from netns.lab.plan import plan
from netns.lab.state import LabDirectory, LabState
from netns.netem.distributions import table
from netns.netem.mahimahi import read_trace
from netns.placement import place, read_job
from netns.topology.file import read_topology
from netns.topology.model import reference

YAML_VALUES: Final = (
    "5", "yes", "~", "1.5", ".nan", ".inf", "-1", "-14", "0", "2001-01-01", "2001-01-01 10:00:00", "2001-99-99",
    "[]", "{}", "[[1]]", "[~]", "{a: 1}", "{1: 2}", "{~: x}", '""', '"a\\nb"', '"\\e[31m"', '"\\0"', '"/"', '".."',
    "1.0e+999", "0x" + "f" * 5000, "9" * 5000, "1" * 30, "1:" * 3000 + "1", "1:" * 3000 + "1.0", "12:30:45", "0x_",
    "0b_", "=", "<<", "*x", "&a [*a]", "{<<: 5}", "{<<: {a: 1}}", "{<<: [{a: 1}, 5]}", "{[1]: 2}", "{{a: b}: 2}",
    '"\\ud800"', "x" * 300,
    "!!binary aGk=", "!!set {a}", "!!omap [a: 1]", "!!int x", '!!int ""', "!!float x", "!!bool x", "!!timestamp x",
    "!!python/name:os.system x", "! x", "!foo x", "!!map [1]", "!!map x", "!!seq {a: 1}", "!!str [1]",
    "\u0665", '"\u0665ms"', "²",
    "1e99ms", "1e-99ms", "1e99bit", "9" * 5000 + "ms", "5 5 5", "5 packets " + "9" * 5000, "1mbit " + "9" * 5000,
)  # fmt: skip

JSON_VALUES: Final = (
    "5", "true", "null", "1.5", "NaN", "Infinity", "-1", "[]", "{}", "[[1]]", "[null]", '{"a": 1}', '""', '"a\\nb"',
    '"\\u001b[31m"', '"\\u0000"', '"\\ud800"', "9" * 4000, "9" * 5000, "1e999", '"%s"' % ("x" * 3000), '"1e99"', '"9E"',
    '"%sE"' % ("9" * 19), '"\u0665"', "[" * 100_000, '"../../x"', '"/"',
)  # fmt: skip

TOPOLOGIES: Final = (
    """{name: demo, mtu: 9000, seed: 1, ipv6: true, ecmp: resilient, captures: [{link: leaf1-spine1, file: up.pcapng}],
    leaf_spine: {leaves: 2, spines: 2, hosts_per_leaf: 1, link: {delay: 0.5ms, rate: 250mbit},
    paths: {spine2: {rate: 25mbit}}}}""",
    """{clos: {blocks: 2, leaves_per_block: 1, hosts_per_leaf: [1, 2], aggregations_per_block: 1, spines: 1,
    host_link: {delay: 50us, rate: 100mbit}, leaf_link: {delay: 50us}, spine_link: {delay: 1ms}}}""",
    """{hosts: [h1, h2], switches: {leaf1: leaf, leaf2: leaf, spine1: spine}, links: [{a: h1, b: leaf1},
    {a: h2, b: leaf2}, {a: leaf1, b: spine1, shape: {delay: 1ms, loss: 1%}},
    {a: leaf2, b: spine1, shape_ab: {rate: 100mbit}, shape_ba: {rate: 1gbit}}]}""",
    """{dumbbell: {hosts_per_side: 2, access: {rate: 1gbit}, bottleneck: {delay: 10ms 1ms 25%, distribution: normal,
    loss: gemodel 1% 10% 70% 0.1%, duplicate: 1% 25%, corrupt: 0.1% 10%, reorder: 25% 50%, gap: 5,
    rate: 1mbit 20 53 5, slot: 800us 1ms packets 10, limit: 1000, ecn: true, seed: 7}}}""",
    """{dumbbell: {bottleneck: {delay: 10ms, jitter: 1ms, distribution: pareto, loss: state 1% 90% 5% 50% 0.5%,
    slot: distribution normal 10ms 1ms bytes 10000, rate: 8mbit, ce_threshold: 20us, limit: 9}}}""",
    "{dumbbell: {bottleneck: {trace: up.trace}}}",
)
PLAN: Final = """{events: [{at: 5s, fail: spine1, for: 2s},
    {at: 8s, set: leaf1-spine2, direction: ab, shape: {loss: 5%}},
    {at: 12s, repair: spine1}, {at: 14s, fail: leaf1-spine3, carrier: true, for: 1s}]}"""
JOBS: Final = (
    """{name: j, ranks: 2, command: [a, b], topology: {required: 3}, slices: [{layer: 3, size: 2}], env: {LOG: '1'},
    resources: {cpu: 500m, gpu: 1}, node_selector: {zone: a}, image: x, queue: research,
    tolerations: [{key: gpu, operator: Exists, value: x, effect: NoSchedule}]}""",
    "{name: j, ranks: 2, command: [a], topology: {preferred: 1}}",
)
EC2: Final = {
    "NextToken": "x",
    "Instances": [
        {"InstanceId": "i-1", "InstanceType": "p5", "NetworkNodes": ["a", "b"], "AvailabilityZone": "x", "ZoneId": "y"},
        {"InstanceId": "i-2", "NetworkNodes": ["a", "c"], "CapacityBlockId": "null"},
    ],
}
KUBERNETES: Final = {
    "items": [
        {
            "metadata": {"name": "n1", "labels": {"kubernetes.io/hostname": "n1"}},
            "spec": {"taints": [{"key": "a", "value": "b", "effect": "NoSchedule"}], "unschedulable": False},
            "status": {
                "allocatable": {"cpu": "1", "pods": 10},
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }
    ]
}
SHAPE: Final = {
    "delay_us": 1,
    "jitter_us": 1,
    "distribution": "normal",
    "loss_model": {"p_percent": 1, "r_percent": 2},
    "slot": {"min_us": 1, "max_us": 2},
}
SPEC: Final = {
    "lab": "demo",
    "control": "/run/x",
    "links": [
        {
            "name": "a-b",
            "a": {"netns": "x", "ifname": "y"},
            "b": {"netns": "x", "ifname": "z"},
            "shape_ab": SHAPE,
            "shape_ba": {},
            "seed_ab": 1,
            "seed_ba": 2,
        }
    ],
}

Path_ = tuple[Any, ...]


def places(document: object, at: Path_ = ()) -> Iterator[Path_]:
    """Where every value and, in a list of its own, every key of a document is."""
    yield at
    if isinstance(document, dict):
        for key, value in document.items():
            yield from places(value, (*at, key))
            yield (*at, [key])
    elif isinstance(document, list):
        for index, value in enumerate(document):
            yield from places(value, (*at, index))


def mutated(document: Any, place: Path_, raw: str, *, write: Callable[[Any], str]) -> str:
    """The document's text with `raw` at `place`."""
    if not place:
        return raw
    whole = copy.deepcopy(document)
    around = whole
    for key in place[:-1]:
        around = around[key]
    if isinstance(place[-1], list):
        around["PLACE"] = around.pop(place[-1][0])
        raw = raw if write is json.dumps else f"? {raw} "
    else:
        around[place[-1]] = "PLACE"
    text = write(whole)
    return text.replace('"PLACE"', raw) if write is json.dumps else text.replace("PLACE", raw)


def as_yaml(document: Any) -> str:
    return str(yaml.safe_dump(document, default_flow_style=True, width=10**9))


def expect_one_line(read: Callable[[Path], object], text: str, *, suffix: str) -> None:
    """Reading succeeds, or raises an error of this package, in one short line."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / f"x{suffix}"
        path.write_text(text)
        (path.parent / "up.trace").write_text("1\n")
        try:
            read(path)
        except LabError as error:
            message = str(error)
            assert message
            assert message.isprintable(), message
            assert len(message) <= MAX_MESSAGE + 10


def use_topology(path: Path) -> None:
    """What every command does with a topology."""
    topology = read_topology(path)
    for fabric in ("kernel", "relay"):
        with suppress(LabError):
            plan(topology, fabric)
    nodes_of(topology)


def use_plan(path: Path) -> None:
    for event in read_schedule(path, reference()):
        str(event)


def use_job(path: Path) -> None:
    place(read_job(path), nodes_of(reference()))


@pytest.mark.parametrize(
    ("document", "read"),
    [
        *((yaml.safe_load(text), use_topology) for text in TOPOLOGIES),
        (yaml.safe_load(PLAN), use_plan),
        *((yaml.safe_load(text), use_job) for text in JOBS),
    ],
)
@settings(max_examples=250)
@given(data=st.data())
def test_yaml(document: Any, read: Callable[[Path], object], data: st.DataObject) -> None:
    place = data.draw(st.sampled_from(list(places(document))))
    raw = data.draw(st.sampled_from(YAML_VALUES))
    expect_one_line(read, mutated(document, place, raw, write=as_yaml), suffix=".yaml")


@pytest.mark.parametrize("document", [EC2, KUBERNETES])
@settings(max_examples=250)
@given(data=st.data())
def test_json__nodes(document: Any, data: st.DataObject) -> None:
    place = data.draw(st.sampled_from(list(places(document))))
    raw = data.draw(st.sampled_from(JSON_VALUES))
    expect_one_line(read_nodes, mutated(document, place, raw, write=json.dumps), suffix=".json")


@settings(max_examples=250)
@given(data=st.data())
def test_json__the_relays_orders(data: st.DataObject) -> None:
    place = data.draw(st.sampled_from(list(places(SPEC))))
    raw = data.draw(st.sampled_from(JSON_VALUES))
    expect_one_line(load_spec, mutated(SPEC, place, raw, write=json.dumps), suffix=".json")


@settings(max_examples=250)
@given(data=st.data())
def test_json__a_labs_record(data: st.DataObject) -> None:
    record = json.loads(json.dumps(asdict(LabState(reference(name="demo"), "relay", "x", namespaces=("demo-h1",)))))
    place = data.draw(st.sampled_from(list(places(record))))
    raw = data.draw(st.sampled_from(JSON_VALUES))

    def read(path: Path) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(netns.lab.state, "ROOT", path.parent)
            directory = LabDirectory("demo")
            directory.path.mkdir()
            path.rename(directory.path / "state.json")
            state = directory.read()
            assert state is not None
            assert state.topology.name == "demo"
            assert set(state.namespaces) <= {f"demo-{node}" for node in state.topology.nodes}

    expect_one_line(read, mutated(record, place, raw, write=json.dumps), suffix=".json")


LINES: Final = st.lists(
    st.sampled_from(
        ["", "0", "1", "5", " 7 ", "-1", "x", "²", "\u0665", "9" * 5000, "1e3", "\0", "\x1b[31m", "1 2", "#"]
    )
)


@example(lines=["9" * 5000])
@given(lines=LINES)
def test_lines__traces_and_tables(lines: list[str]) -> None:
    text = "\n".join(lines)
    expect_one_line(read_trace, text, suffix=".trace")
    expect_one_line(lambda path: table(str(path)), text, suffix=".dist")
