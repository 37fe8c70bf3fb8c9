"""netns.backends.kernel.capabilities on a kernel that has netem. (Where the host's has none:
tests/integration/test_real_netem.py.)

The same shape is set over netlink and by tc; the kernel must return the same options for both.
"""

from __future__ import annotations

import pytest

from netns.backends.kernel.capabilities import KIND, accepts_seeds, missing, set_netem
from netns.backends.kernel.netem_options import JITTER64, LATENCY64, PRNG_SEED, options_untrusted
from netns.backends.kernel.netlink import in_namespace, run_tool
from netns.backends.kernel.qdisc import delete_root, root_options
from netns.backends.relay.tap import in_nameless_namespace
from netns.errors import BackendError
from netns.lab.lab import Lab
from netns.netem.params import Slot
from netns.netem.shape import Shape
from netns.netem.tc_format import netem_arguments
from netns.topology.model import Link, Switch, Topology
from tests.netns.conftest import has_netem
from tests.netns.exchange import udp_socket
from tests.netns.netem.test_tc_format import EVERYTHING
from tests.patience import wait_until

pytestmark = [
    pytest.mark.netem,
    pytest.mark.root,
    pytest.mark.skipif(not has_netem(), reason="runs under User-Mode Linux: test_real_netem.py"),
]


def topology(name: str, shape: Shape) -> Topology:
    return Topology(
        name=name,
        hosts=("h1", "h2"),
        switches=(Switch("leaf1", "leaf"),),
        links=(Link("h1", "leaf1"), Link("leaf1", "h2", shape)),
    )


def by_us(shape: Shape) -> dict[int, bytes]:
    set_netem("lo", shape, seed=None)
    return without_seed(root_options("lo", kind=KIND))


def by_tc(shape: Shape) -> dict[int, bytes]:
    run_tool("tc", "qdisc", "replace", "dev", "lo", "root", "netem", *netem_arguments(shape))
    return without_seed(root_options("lo", kind=KIND))


def nanoseconds(content: bytes) -> int:
    return int.from_bytes(content, "little", signed=True)


def without_seed(options: bytes) -> dict[int, bytes]:
    return {kind: content for kind, content in options_untrusted(options).items() if kind != PRNG_SEED}


@pytest.mark.parametrize("shape", [shape for shape, _ in EVERYTHING], ids=[words for _, words in EVERYTHING])
def test_set_netem__equals_tc_arguments(shape: Shape) -> None:
    def work() -> None:
        ours = by_us(shape)
        delete_root("lo")
        tcs = by_tc(shape)
        # tc 6.1 counts times in whole microseconds, and passes them to the kernel in ticks of 64 ns.
        for kind in (LATENCY64, JITTER64):
            assert abs(nanoseconds(ours.pop(kind)) - nanoseconds(tcs.pop(kind))) < 1000
        assert ours.pop(0)[4:20] == tcs.pop(0)[4:20], "limit, loss, gap, duplicate; between two times"
        assert ours == tcs

    in_nameless_namespace(work)


@pytest.mark.parametrize("shape", [shape for shape, _ in EVERYTHING], ids=[words for _, words in EVERYTHING])
def test_set_netem__a_change_replaces_all_options(shape: Shape) -> None:
    def work() -> None:
        fresh = by_us(Shape(limit_packets=7))
        set_netem("lo", shape, seed=None, before=Shape(limit_packets=7))
        set_netem("lo", Shape(limit_packets=7), seed=None, before=shape)
        assert without_seed(root_options("lo", kind=KIND)) == fresh

    in_nameless_namespace(work)


def test_missing__of_everything_that_this_kernel_has() -> None:
    assert [missing(shape) for shape, _ in EVERYTHING] == [None] * len(EVERYTHING)
    assert missing(Shape(slot=Slot(max_us=5), ecn=True, loss_percent=1)) is None


def test_missing__a_seed_before_linux_6_6() -> None:
    assert accepts_seeds() == (missing(Shape(seed=7)) is None)
    if not accepts_seeds():
        assert missing(Shape(seed=7)) == "its netem has no seed (Linux 6.6 has it)"
        with pytest.raises(
            BackendError, match=r"^link leaf1-h2: this kernel cannot do .* seed 7: .*; use --backend relay"
        ):
            Lab.up(topology("seeded", Shape(seed=7)), backend="kernel")


ON_ONE_LINK = pytest.mark.lab(topology("real", Shape(delay_us=1000)), backend="kernel")


@ON_ONE_LINK
def test_lab__a_live_change_takes_effect_and_is_recorded(lab: Lab) -> None:
    with udp_socket(lab, "h1") as sender, udp_socket(lab, "h2") as receiver:
        target = receiver.getsockname()
        sender.sendto(b"one", target)
        assert receiver.recv(10) == b"one"
        lab.reshape("leaf1-h2", ab=Shape(loss_percent=100))
        assert lab.shapes("leaf1-h2")["ab"] == Shape(loss_percent=100)
        sender.sendto(b"two", target)
        wait_until(lambda: lab.counters()["leaf1-h2"]["ab"]["dropped"] == 1)  # it is at the link
        lab.reshape("leaf1-h2", ab=Shape())
        sender.sendto(b"three", target)
        assert receiver.recv(10) == b"three"
    assert lab.counters()["leaf1-h2"]["ab"] == {"packets": 2, "bytes": 2 * 42 + 8, "dropped": 1, "queued": 0}


@ON_ONE_LINK
def test_lab__unsupported_change_leaves_the_link_unchanged_bad_flow(lab: Lab) -> None:
    shape = Shape(seed=9)
    if missing(shape) is None:
        lab.reshape("leaf1-h2", ab=shape)
        return
    with pytest.raises(BackendError, match="this kernel cannot do limit 1000 seed 9"):
        lab.reshape("leaf1-h2", ab=shape)
    options = in_namespace(lab.netns("leaf1"), lambda: root_options("h2", kind=KIND))
    assert options_untrusted(options)[0][:4] != bytes(4), "the delay is still there"
