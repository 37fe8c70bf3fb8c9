"""Completion statuses: EFA's numbers and names, and that each is reachable."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from netns.netem.shape import Shape
from srd.proto.config import MAX_MESSAGE_BYTES, ProtocolConfig
from srd.proto.events import ReceiveResult
from srd.proto.wire.control import Nack
from srd.proto.wire.data import Opcode
from srd.proto.wire.status import REFUSALS, Status, refusal_untrusted
from srd.proto.work_request import WorkRequest
from tests.simulation import Network, ended
from tests.srd.proto.byhand import give
from tests.srd.proto.contract import MIB, Pair

# rdma-core, providers/efa/efa_io_defs.h, enum efa_io_comp_status.
EFA = {
    "OK": 0,
    "FLUSHED": 1,
    "LOCAL_ERROR_QP_INTERNAL_ERROR": 2,
    "LOCAL_ERROR_UNSUPPORTED_OP": 3,
    "LOCAL_ERROR_INVALID_AH": 4,
    "LOCAL_ERROR_INVALID_LKEY": 5,
    "LOCAL_ERROR_BAD_LENGTH": 6,
    "REMOTE_ERROR_BAD_ADDRESS": 7,
    "REMOTE_ERROR_ABORT": 8,
    "REMOTE_ERROR_BAD_DEST_QPN": 9,
    "REMOTE_ERROR_RNR": 10,
    "REMOTE_ERROR_BAD_LENGTH": 11,
    "REMOTE_ERROR_BAD_STATUS": 12,
    "LOCAL_ERROR_UNRESP_REMOTE": 13,
    "REMOTE_ERROR_UNKNOWN_PEER": 14,
    "LOCAL_ERROR_UNREACH_REMOTE": 15,
    "REMOTE_ERROR_FEATURE_MISMATCH": 18,
}


def test_status__has_efas_numbers_and_names() -> None:
    assert {status.name: status.value for status in Status} == EFA


def test_refusal_untrusted__ok_is_no_refusal() -> None:
    assert Status.OK not in REFUSALS
    for number in range(256):
        wanted = Status(number) if number in REFUSALS else Status.REMOTE_ERROR_BAD_STATUS
        assert refusal_untrusted(number) is wanted


# -- each is reachable at the requester ------------------------------------------------------------------------------

Reached = Callable[[], Status]


def requested(
    post: Callable[[Pair], None], *, meanwhile: Callable[[Pair], None] = lambda _: None, **config: Any
) -> Reached:
    """Post request 1 over a slow link; after 50 ms call `event`. Returns how the request ended."""

    def reach() -> Status:
        pair = Pair(shape=Shape(delay_us=500, rate_bps=10_000_000, limit_packets=200), **config)
        post(pair)
        pair.network.run(seconds=0.05)
        meanwhile(pair)
        pair.run(1)
        return pair.statuses()[1]

    return reach


def connecting(prepare: Callable[[Network], None]) -> Reached:
    """Open a peer that does not open. Returns how it ended."""

    def reach() -> Status:
        network = Network(seed=1)
        prepare(network)
        network.a.core.connect("b:0", sizes=(1472,), now=network.now)
        network.run(until=lambda: bool(ended(network.a)), seconds=15)
        return ended(network.a)[0].status

    return reach


def another_version(network: Network) -> None:
    def refuse(*_args: object, controls: Sequence[tuple[bytes, str, float]], **_kwargs: object) -> ReceiveResult:
        for data, source, _ in controls:
            network.b.core._stateless.on_malformed(b"\x09" + data[1:], source)
        return ReceiveResult()

    network.b.core.handle_packets = refuse  # type: ignore[method-assign,assignment]  # it has another version


def post_to_unregistered(pair: Pair) -> None:
    pair.a.core.post(99, WorkRequest(request=1, length=1))


def die(pair: Pair) -> None:
    pair.b.alive = False


def internal_error(pair: Pair) -> None:
    """As the endpoint does on an internal error."""
    peer = pair.a.core.peer(pair.at_a)
    peer.end(Status.LOCAL_ERROR_QP_INTERNAL_ERROR, reason="a fault")
    pair.a.core._after(peer, now=pair.network.now)


def refuse_with(pair: Pair, number: int) -> None:
    give(pair.a, Nack(pair.a.core.peer(pair.at_a).own_context, 0, number), now=pair.network.now, source="b:0")


def shrink(pair: Pair) -> None:
    responder = pair.b.core.peer(pair.at_b).responder
    responder._shared.config = ProtocolConfig(max_message_bytes=1000)


def write(pair: Pair) -> None:
    pair.write(1, length=4 * MIB)


def send(pair: Pair) -> None:
    pair.send(1, length=MIB)


REACHED: dict[Status, Reached] = {
    Status.OK: requested(send),
    Status.FLUSHED: requested(send, meanwhile=lambda pair: pair.cancel(1)),
    Status.LOCAL_ERROR_QP_INTERNAL_ERROR: requested(send, meanwhile=internal_error),
    Status.LOCAL_ERROR_UNSUPPORTED_OP: requested(
        lambda pair: pair.a.core.post(pair.at_a, WorkRequest(request=1, length=1, opcode=Opcode.RESPONSE))
    ),
    Status.LOCAL_ERROR_INVALID_AH: requested(post_to_unregistered),
    Status.LOCAL_ERROR_INVALID_LKEY: requested(lambda pair: pair.read(1, length=1, local_key=77)),
    Status.LOCAL_ERROR_BAD_LENGTH: requested(lambda pair: pair.write(1, length=MAX_MESSAGE_BYTES + 1)),
    Status.REMOTE_ERROR_BAD_ADDRESS: requested(lambda pair: pair.write(1, length=1, key=77)),
    Status.REMOTE_ERROR_ABORT: requested(
        write, meanwhile=lambda pair: pair.b.core.close(pair.at_b, now=pair.network.now)
    ),
    Status.REMOTE_ERROR_BAD_DEST_QPN: connecting(
        lambda network: setattr(network.b.core._stateless, "accepting", False)
    ),
    Status.REMOTE_ERROR_RNR: requested(send, meanwhile=lambda pair: setattr(pair.b, "full", True), rnr_retry=0),
    Status.REMOTE_ERROR_BAD_LENGTH: requested(send, meanwhile=shrink),
    Status.REMOTE_ERROR_BAD_STATUS: requested(write, meanwhile=lambda pair: refuse_with(pair, 200)),
    Status.LOCAL_ERROR_UNRESP_REMOTE: requested(send, meanwhile=die),
    Status.REMOTE_ERROR_UNKNOWN_PEER: requested(
        send, meanwhile=lambda pair: setattr(pair, "b", pair.network.replace("b"))
    ),
    Status.LOCAL_ERROR_UNREACH_REMOTE: connecting(lambda network: setattr(network.b, "alive", False)),
    Status.REMOTE_ERROR_FEATURE_MISMATCH: connecting(another_version),
}


@pytest.mark.sources
@pytest.mark.parametrize("status", Status, ids=lambda status: status.name)
def test_status__is_reachable(status: Status) -> None:
    assert REACHED[status]() is status
