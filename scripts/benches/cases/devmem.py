"""Device memory: transfers from one region to another, compared with copies around kernel TCP.

Two processes in two namespaces (kernel backend): over a link shaped to 1 Gbit/s, and over a bare veth pair; see
scripts/benches/devmem/host.py. `ours` uses every byte where the kernel wrote it, and returns tokens; `gather` first
copies a message into one buffer, as a consumer that cannot use fragments has to; `classic` is kernel TCP (cubic)
between two copies. CPU time is that of both processes, user and system.

`line_fraction`: goodput over the shaped link's payload rate. `classic_ratio`, `cpu_per_gb_ratio`: ours over classic, on
the bare pair. `bytes_copied`: as counted by the transport, of some GB. Before the first round a guard verifies the
counter; if it fails there are no rounds. In that run of 64 MiB both processes may access the pages of their regions
only during system calls, so that a process that touches payload is killed (scripts/benches/devmem/mprotect_guard.py);
one that gathers must be killed.
"""

from __future__ import annotations

from typing import Final

from scripts.benches.devmem.run import DevmemTransfer, is_killed, transfer
from scripts.benches.devmem.shaped import MTU, PAYLOAD_RATE_BPS, shaped_veth_pair
from scripts.benches.outcome import Figures, Round, Wanted
from scripts.harness.errors import BenchError
from scripts.harness.two_hosts import TwoHosts, veth_pair

WANTED: Final = (
    Wanted("line_fraction", ">=", 0.966),
    Wanted("bytes_copied", "<=", 0),
    Wanted("classic_ratio", ">=", 0.9),
    Wanted("cpu_per_gb_ratio", "<=", 0.8),
)
NEEDS: Final = ()
SECONDS: Final = 4.0
METHODS: Final = ("srd", "classic", "gather")


def measure(number: int, seconds: float) -> Round:
    """Measure all contestants, in turn. Raises BenchError if the guard does not work here."""
    with shaped_veth_pair(name="bench-shaped") as shaped, veth_pair(mtu=MTU, offload=True, name="bench-bare") as bare:
        if number == 1:
            _verify_guard(bare)
        return _round(number, shaped, bare, seconds=seconds)


def _verify_guard(bare: TwoHosts) -> None:
    """Verify with the guard that nothing is copied, and first that the guard detects a copy. Raises BenchError."""
    if not is_killed("guarded-gather", bare):
        raise BenchError("the guard does not work here: it did not detect a consumer that copies every message")
    if transfer("guarded", bare, seconds=0).bytes_copied:
        raise BenchError("the guard detected no copy, but the transport counted one")


def _round(number: int, shaped: TwoHosts, bare: TwoHosts, *, seconds: float) -> Round:
    over = {
        method: (transfer(method, shaped, seconds=seconds), transfer(method, bare, seconds=seconds))
        for method in METHODS
    }
    ours, classic = over["srd"], over["classic"]
    figures = {
        **_figures(*ours),
        "bytes_copied": ours[0].bytes_copied + ours[1].bytes_copied,
        "classic_ratio": ours[1].goodput_bps / classic[1].goodput_bps,
        "cpu_per_gb_ratio": ours[1].cpu_s_per_gb / classic[1].cpu_s_per_gb,
    }
    return Round(number, figures, {method: _figures(*over[method]) for method in METHODS[1:]})


def _figures(shaped: DevmemTransfer, bare: DevmemTransfer) -> Figures:
    return {
        "line_fraction": shaped.goodput_bps / PAYLOAD_RATE_BPS,
        "goodput_gbps": bare.goodput_bps / 1e9,
        "cpu_per_gb_s": bare.cpu_s_per_gb,
        "shaped_cpu_per_gb_s": shaped.cpu_s_per_gb,
        "bytes_copied": shaped.bytes_copied + bare.bytes_copied,
    }
