"""Hostile packets beside a regular, encrypted transfer (or `--plain`), on loopback: a million, 10,000 a second.

It is a scenario of torture with one sender, whose attacker (torture/attacker.py) sends in slices: packets that are
malformed, well-formed but unexpected, mutated from the transfer's own, or have every field at its limits. They come
from open peers that misbehave, and from addresses that opened none, with these peers' contexts and with others; single
and in GSO trains. Those of open peers are authentic, but for a fifth. Further peers lie in every field, in packets and
trains that are all authentic, and seal some in the name of the transfer (not with `--plain`). Each slice follows as
much time without hostile packets. Messages are of up to 1 MiB, and every byte is compared (torture/reconcile.py).

`transfer_ok`: all data was right, nothing else came in its sender's name, no request failed, and all that completed was
delivered. `lies`: packets and trains of the peers that lie. `crashes`: ends that died or wrote a traceback or a
warning. `rss_growth_mb`: of the receiver, from the first slice on, without its regions, whose size is fixed.
`amplification_ratio`: bytes sent to an address that was not validated, over the bytes received from it; the worst of
all. `honest_throughput_ratio`: what completes with over what completes without hostile packets. Needs root, to capture
packets.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

import numpy as np

from netns.base.build import BUILD
from scripts.benches import campaign
from scripts.benches.case import CaseOptions
from scripts.benches.outcome import Round, Wanted
from scripts.benches.torture.journal import JournalEntry, entries
from scripts.benches.torture.layout import ATTACK
from scripts.benches.torture.plans import (
    MIB,
    AttackerPlan,
    EndpointPlan,
    Net,
    NetworkPlan,
    ReceiverPlan,
    RequestKind,
    SenderPlan,
    TortureScenario,
)
from scripts.benches.torture.process import TortureWorker
from scripts.benches.torture.run import TortureRun, completed
from scripts.benches.torture.scenario import LIE, with_region
from scripts.harness.errors import BenchError
from srd.proto.wire.status import Status

PACKETS: Final = 1_000_000
RATE: Final = 10_000
"""Hostile packets per second."""
SLICE_PACKETS: Final = 40_000
KINDS: Final = {"noise": 1.0, "control": 1.0, "data": 1.0, "mutated": 1.0, "edge": 2.0, LIE: 0.12}
TRAINS: Final = 0.02
REQUEST_TIMEOUT_S: Final = 30.0
MAKING_S: Final = 20.0
"""Time at most in which an attacker makes the packets of a slice."""
WANTED: Final = (
    Wanted("transfer_ok", ">=", 1),
    Wanted("crashes", "<=", 0),
    Wanted("rss_growth_mb", "<=", 16),
    Wanted("amplification_ratio", "<=", 3),
    Wanted("honest_throughput_ratio", ">=", 0.8),
)


def rounds(request: CaseOptions) -> Iterator[Round]:
    if os.geteuid():
        raise BenchError("hostile captures packets of its own transfer, which needs root; run it with sudo")
    seed = 1 if request.seed is None else request.seed
    packets, plain = request.packets or PACKETS, request.plain
    with completed(scenario(packets, seed=seed, secure=not plain)) as run:
        command = f"hostile --seed {seed} --packets {packets}{' --plain' * plain}"
        campaign.complain(run.result.faults, command=command)
        yield Round(seed, figures(run))


def scenario(packets: int, *, seed: int, secure: bool) -> TortureScenario:
    security, in_slice = "keys" if secure else "plain", min(packets, SLICE_PACKETS)
    plan = EndpointPlan(
        paths=32,
        receive_window_bytes=32 * MIB,
        request_timeout_s=REQUEST_TIMEOUT_S,
        compiled=BUILD == "compiled",
        security=security,
    )
    endpoint = with_region(plan, factor=1.0)
    sender = SenderPlan(endpoint, weights={RequestKind.SEND: 1.0}, longest_bytes=MIB, outstanding=16, small=0.0)
    slice_s, slices = in_slice / RATE, -(-packets // in_slice)
    attacker = AttackerPlan(RATE, TRAINS, KINDS, slice_s, security=security, slices=slices)
    seconds = slices * (2 * slice_s + MAKING_S)
    return TortureScenario(seed, seconds, NetworkPlan(Net.LOOPBACK), ReceiverPlan(endpoint), (sender,), (attacker,))


def figures(run: TortureRun) -> dict[str, float]:
    """Return the figures of a run. Raises BenchError if its attack was not completed."""
    attack = list(entries(run.directory / ATTACK))
    if not attack or attack[-1].kind != "end":
        raise BenchError(f"the attack was not completed: {run.result.faults[:1] or 'no reason given'}")
    receiver, sender = (next(each for each in run.workers if each.worker == number) for number in (0, 1))
    ends = list(_completed(sender))
    silent, sending = _Span(), _Span()
    for before, after in pairwise(attack):
        if (span := {"silent": silent, "sending": sending}.get(before.kind)) is not None:
            span.add(before, after, ends=ends, receiver=receiver)
    sent, found, result = (
        sum(each.values[0] for each in attack if each.kind == "sent"),
        attack[-1].values[0],
        run.result,
    )
    failed = sum(status not in (Status.OK, Status.FLUSHED) for _, _, status in ends)
    cpu_s = max(sending.cpu_s - silent.cpu_s / max(silent.size_bytes, 1) * sending.size_bytes, 0.0)
    first = next(each.at for each in attack if each.kind == "silent")
    memory = [each.anonymous_bytes for each in receiver.samples if each.at >= first]
    return {
        "packets": sent,
        "lies": found["lies"],
        "transfer_ok": int(bool(ends) and not failed and not result.faults),
        "wrong_bytes": len(result.wrong),
        "crashes": len(result.tracebacks),
        "rss_growth_mb": (memory[-1] - memory[0]) / 1e6,
        "amplification_ratio": found["amplification"],
        "honest_throughput_ratio": sending.bytes_per_s / silent.bytes_per_s,
        "honest_quiet_gbps": 8e-9 * silent.bytes_per_s,
        "hostile_packets_per_second": sent / sending.seconds,
        "cpu_us_per_hostile_packet": cpu_s / sent * 1e6,
    }


class _Span:
    """Sums over all slices of one kind."""

    def __init__(self) -> None:
        self.seconds = self.cpu_s = 0.0
        self.size_bytes = 0

    def add(
        self,
        before: JournalEntry,
        after: JournalEntry,
        *,
        ends: Sequence[tuple[float, int, int]],
        receiver: TortureWorker,
    ) -> None:
        self.seconds += after.at - before.at
        self.size_bytes += sum(
            length for at, length, status in ends if before.at <= at < after.at and status == Status.OK
        )
        times, used = [each.at for each in receiver.samples], [each.cpu_s for each in receiver.samples]
        self.cpu_s += float(np.interp(after.at, times, used) - np.interp(before.at, times, used))

    @property
    def bytes_per_s(self) -> float:
        return self.size_bytes / self.seconds


def _completed(sender: TortureWorker) -> Iterator[tuple[float, int, int]]:
    """Yield when each request ended, its length and its status."""
    lengths: dict[tuple[int, int], int] = {}
    for entry in entries(sender.journal):
        if entry.kind == "send":
            connection, number, length, _ = entry.values
            lengths[connection, number] = length
        elif entry.kind == "end":
            connection, number, _, status = entry.values
            yield entry.at, lengths[connection, number], status
