"""scripts.harness.rooms: where samples of perf were taken; the rooms of all compiled modules."""

from __future__ import annotations

import pytest

from scripts.harness.errors import BenchError
from scripts.harness.rooms import INTERPRETER, KERNEL, OTHER, ROOMS, modules, room, room_of, shares


@pytest.mark.parametrize(
    ("symbol", "library", "found"),
    [
        ("udp_sendmsg", "[kernel.kallsyms]", KERNEL),
        ("nf_hook", "/lib/modules/6.1/kernel/net/nf.ko", KERNEL),
        ("PyObject_GetAttr", "/usr/bin/python3.11", INTERPRETER),
        ("[unknown]", "/usr/lib/libpython3.11.so.1.0", INTERPRETER),
        ("CPyDict_GetItem", "/x/5b1e__mypyc.cpython-311-x86_64-linux-gnu.so", INTERPRETER),
        ("CPyDef_tx___Transmitter___flush", "/x/5b1e__mypyc.so", "io"),
        ("CPyPy_send___queue___SendQueue___post", "/x/5b1e__mypyc.so", "send"),
        ("CPyDef_endpoint___peer___PeerCore___handle_ack", "/x/5b1e__mypyc.so", "core"),
        ("CPyDef_srd___peer___Peer____post", "/x/5b1e__mypyc.so", "api"),
        ("CPyDef_members___Members___find", "/x/5b1e__mypyc.so", OTHER),
        ("uv__io_poll", "/x/uvloop/loop.so", OTHER),
    ],
)
def test_room__of_a_sample(symbol: str, library: str, found: str) -> None:
    assert room(symbol, library, rooms=modules()) == found


def test_rooms__each_has_modules() -> None:
    assert set(ROOMS) <= set(modules().values())


def test_room_of__the_longest_beginning_counts() -> None:
    assert room_of("proto/send/sender") == "send"
    assert room_of("proto/endpoint/core") == "core"
    assert room_of("tunnel/gateway") == OTHER


def test_shares__add_up() -> None:
    lines = [
        "    ffffffff81 udp_sendmsg ([kernel.kallsyms])",
        "    7f12 CPyDef_tx___Transmitter___flush (/x/5b1e__mypyc.so)",
        "    7f13 [unknown] (/usr/bin/python3.11)",
        "    7f14 [unknown] (/usr/bin/python3.11)",
        "",
    ]
    assert shares(lines) == {INTERPRETER: 0.5, KERNEL: 0.25, "io": 0.25}
    with pytest.raises(BenchError, match="no sample"):
        shares([])
