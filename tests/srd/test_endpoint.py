"""srd.endpoint over loopback: opening, accepting, refusing, unreachable hosts, and resources after close."""

from __future__ import annotations

import asyncio
import gc
import re
import socket
import time
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest

import srd.endpoint
import srd.engine
from devmem.errors import RegionError
from devmem.region import Region
from devmem.registry import Access
from netns.base.addresses import host_port_text
from srd.config import EndpointConfig
from srd.endpoint import Endpoint
from srd.errors import PeerError, SrdError
from srd.io.rx_buffers import SUPER_BYTES, scratch_bytes
from srd.io.rx_memory import SLOTS
from srd.io.socket import Route
from srd.peer import Peer
from srd.proto.config import ProtocolConfig
from srd.proto.wire.control import Close
from srd.proto.wire.status import Status
from tests.patience import PATIENCE_S, until
from tests.srd.loopback import PLAIN, SMALL, carry, closed_port, content, memory, open_files, pair, send

SEED = 21
SLOW = replace(SMALL, protocol=replace(SMALL.protocol, handshake_timeout_s=60), close_timeout_s=60)


async def test_failure__internal_ends_every_request_and_peer_with_its_status() -> None:
    async with pair() as (one, _, here, there):
        with Region(4 << 20) as region:
            request = here.post_send(region, offset=0, length=4 << 20)
            one._engine.driver.close()
            one._engine._fail(ValueError("no"))
            assert await request is Status.LOCAL_ERROR_QP_INTERNAL_ERROR
            assert await here.wait_ended() is Status.LOCAL_ERROR_QP_INTERNAL_ERROR
            assert "internal error: ValueError('no')" in str(here.error())
            async with asyncio.timeout(PATIENCE_S):
                assert await there.wait_ended() is Status.LOCAL_ERROR_UNRESP_REMOTE


@pytest.mark.sources
async def test_failure__of_the_core_wakes_all_waiting_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, errors = asyncio.get_running_loop(), []
    loop.set_exception_handler(lambda _, context: errors.append(context["exception"]))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        async with pair(config=SLOW) as (_, two, here, there):
            connecting = asyncio.ensure_future(two.connect("127.0.0.1", port=silent.getsockname()[1]))
            await until(lambda: two._opening)
            calls = [
                there.recv(),
                there.recv_write(),
                there.close(),
                two.accept(),
                two.completions.wait(),
            ]
            waiting = [connecting, *(asyncio.ensure_future(call) for call in calls)]
            await asyncio.sleep(0)

            def fail(*_: object, **__: object) -> None:
                raise ValueError("no")

            monkeypatch.setattr(two._engine.core, "handle_packets", fail)
            with Region(4096) as region:
                here.post_send(region, offset=0, length=1)
                async with asyncio.timeout(PATIENCE_S):
                    results = await asyncio.gather(*waiting, return_exceptions=True)
                    await asyncio.gather(two.close(), two.close())
                    await here.close()
            expected = [PeerError, PeerError, PeerError, type(None), SrdError, SrdError]
            assert [type(result) for result in results] == expected
            with pytest.raises(SrdError, match="internal error: ValueError"):
                await two.connect("127.0.0.1", port=9)
    loop.set_exception_handler(None)
    assert [str(error) for error in errors] == ["no"]


# -- peers that cannot be opened ------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
async def test_connect__closed_port_ends_by_its_icmp_error_with_15(host: str) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with closed_port(family) as port:
        async with asyncio.timeout(PATIENCE_S), await Endpoint.open(towards=host, config=SMALL) as one:
            with pytest.raises(PeerError, match=r": nothing listens there \(port unreachable\)$") as caught:
                await one.connect(host, port=port)
            assert str(caught.value).startswith(f"{host_port_text(host, port)}: ")
            assert caught.value.status == 15  # and not "no answer", the handshake's timeout


async def test_connect__an_endpoint_that_does_not_listen_refuses() -> None:
    async with (
        asyncio.timeout(PATIENCE_S),
        await Endpoint.open(towards="127.0.0.1", config=SMALL) as two,
        await Endpoint.open(towards="127.0.0.1", config=SMALL) as one,
    ):
        with pytest.raises(PeerError, match="refused"):
            await one.connect("127.0.0.1", port=two.address[1])


@pytest.mark.parametrize("host", ["no-such-host.invalid", "256.1.1.1.invalid", "a..b", "é" * 70])
async def test_resolve__unknown_host_bad_flow(host: str) -> None:
    with pytest.raises(SrdError, match=f"^{host}: unknown host"):
        await Endpoint.open(towards=host, config=SMALL)
    with pytest.raises(SrdError, match=f"^{host}: unknown host"):
        await Endpoint.listen(host, port=0, config=SMALL)


async def test_connect__no_route_bad_flow() -> None:
    async with await Endpoint.open(towards="127.0.0.1", config=SMALL) as one:
        with pytest.raises(SrdError, match=r"255.255.255.255: no route to it"):
            await one.connect("255.255.255.255", port=9)


@pytest.mark.sources
async def test_connect__an_mtu_that_is_too_small_bad_flow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(srd.engine, "route_to", lambda _address, *, family: Route(600 if family else 0, "127.0.0.1"))
    async with await Endpoint.open(towards="127.0.0.1", config=SMALL) as one:
        expected = (
            "127.0.0.1: the route's MTU is 600 bytes; SRD needs at least 604 (576-byte datagrams); "
            "raise the MTU of the interface"
        )
        with pytest.raises(SrdError, match=f"^{re.escape(expected)}$"):
            await one.connect("127.0.0.1", port=9)


# -- endpoints that cannot be opened --------------------------------------------------------------------------------


async def test_listen__address_in_use_bad_flow() -> None:
    async with await Endpoint.listen("127.0.0.1", port=0, config=SMALL) as one:
        before = open_files()
        with pytest.raises(SrdError, match=rf"^127.0.0.1:{one.address[1]}: cannot be bound: Address already in use$"):
            await Endpoint.listen("127.0.0.1", port=one.address[1], config=SMALL)
        assert open_files() == before


async def test_listen__bad_settings_leave_nothing_open_bad_flow() -> None:
    config = EndpointConfig(receive_region_bytes=1 << 62)
    before = open_files()
    with pytest.raises(RegionError):
        await Endpoint.listen("127.0.0.1", port=0, config=config)
    gc.collect()
    assert open_files() == before


@pytest.mark.parametrize(("chunk_bytes", "datagram_bytes"), [(2 * SUPER_BYTES, 1472), (512 << 10, 8972)])
async def test_listen__the_smallest_region_suffices_for_messages(chunk_bytes: int, datagram_bytes: int) -> None:
    """For any size of bursts: each pins its chunk."""
    window_bytes = 4 << 20
    least = EndpointConfig(
        receive_region_bytes=(SLOTS + 1) * chunk_bytes + scratch_bytes(SLOTS) + 2 * window_bytes,
        chunk_bytes=chunk_bytes,
        datagram_bytes=datagram_bytes,
        protocol=ProtocolConfig(paths=4, receive_window_bytes=window_bytes, max_message_bytes=window_bytes),
    )
    async with pair(config=least) as (_, _, here, there):
        for number in range(4):
            await carry(here, there, content(window_bytes, seed=number))


# -- close ----------------------------------------------------------------------------------------------------------


async def test_close__nothing_may_be_started_after_it_bad_flow() -> None:
    async with pair() as (one, two, _, _):
        for endpoint in (one, two):
            await endpoint.close()
        with Region(4096) as region:
            for begin in (
                lambda: one.register(region, offset=0, length=1, access=Access.REMOTE_READ, peers=None),
                lambda: one.bind_rx(region),
            ):
                with pytest.raises(SrdError, match=r"^the endpoint is closed$"):
                    begin()
        with pytest.raises(SrdError, match=r"^the endpoint is closed$"):
            await one.connect("127.0.0.1", port=two.address[1])
        with pytest.raises(SrdError, match=r"^the endpoint is closed$"):
            await two.accept()
        assert one.dropped_packets == two.dropped_packets == 0


@pytest.mark.sources
async def test_close__during_a_look_up_of_the_host_ends_the_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    one = await Endpoint.open(towards="127.0.0.1", config=SMALL)
    answered = asyncio.get_running_loop().create_future()

    async def look_up(_host: str, *, port: int, passive: bool) -> list[tuple[socket.AddressFamily, tuple[str, int]]]:
        await answered
        assert not passive
        return [(socket.AF_INET, ("127.0.0.1", port))]

    monkeypatch.setattr(srd.endpoint, "resolve", look_up)
    connecting = asyncio.ensure_future(one.connect("name", port=9))
    await asyncio.sleep(0)
    await one.close()
    answered.set_result(None)
    with pytest.raises(SrdError, match="the endpoint is closed"):
        await asyncio.wait_for(connecting, PATIENCE_S)


@pytest.mark.sources
async def test_close__an_error_with_one_peer_does_not_stop_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    gc.collect()  # what earlier tests have left
    files = open_files()
    async with pair() as (one, two, here, there):
        await one.connect("127.0.0.1", port=two.address[1])
        second_there = await two.accept()
        end = Peer.end

        async def fail(peer: Peer) -> None:
            if peer is here:
                raise ValueError("no")
            await end(peer)

        monkeypatch.setattr(Peer, "end", fail)
        async with asyncio.timeout(PATIENCE_S):
            with pytest.raises(ValueError, match="no"):
                await one.close()
            assert await there.wait_ended() is Status.OK
            assert await second_there.wait_ended() is Status.OK
        assert here.ended
    gc.collect()
    assert open_files() == files


async def test_close__ends_an_attempt_to_connect() -> None:
    """An attempt to connect raises."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        one = await Endpoint.open(towards="127.0.0.1", config=SMALL)
        connecting = asyncio.ensure_future(one.connect("127.0.0.1", port=silent.getsockname()[1]))
        silent.settimeout(0)
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.get_running_loop().sock_recv(silent, 10_000)  # the first HELLO: the attempt has started
        await one.close()
        with pytest.raises(SrdError):
            await asyncio.wait_for(connecting, timeout=PATIENCE_S)


# -- memory ---------------------------------------------------------------------------------------------------------


async def test_peer_ended__releases_the_memory_of_messages_that_were_not_received() -> None:
    """A daemon whose peers fail must not lose a window of memory with each."""
    async with asyncio.timeout(PATIENCE_S * 3), await Endpoint.listen("127.0.0.1", port=0, config=SMALL) as two:
        async with await Endpoint.open(towards="127.0.0.1", config=SMALL) as one:
            for number in range(6):
                here = await one.connect("127.0.0.1", port=two.address[1])
                there = await two.accept()
                for _ in range(2):  # the whole window, acknowledged, and not received by the application
                    assert await send(here, content(4 << 20, seed=number)) is Status.OK
                await there.close()
        assert two.dropped_packets == 0


@pytest.mark.parametrize("retry", [1, 7])
async def test_region__granted_to_more_peers_than_it_can_hold(retry: int) -> None:
    """Four windows of 8 MiB into 24 MiB, and an application that keeps all messages: each loss has a status."""
    opener = replace(SMALL, protocol=replace(SMALL.protocol, rnr_retry=retry))
    # On a busy machine a message may wait for longer than the default, and would be discarded, which is an RNR, too.
    patient = replace(SMALL, protocol=replace(SMALL.protocol, stalled_after_s=PATIENCE_S))
    payload = content(2 << 20, seed=SEED)
    async with AsyncExitStack() as stack, asyncio.timeout(PATIENCE_S * 2):
        two = await stack.enter_async_context(await Endpoint.listen("127.0.0.1", port=0, config=patient))
        openers = [
            await stack.enter_async_context(await Endpoint.open(towards="127.0.0.1", config=opener)) for _ in range(4)
        ]
        peers = [await one.connect("127.0.0.1", port=two.address[1]) for one in openers]
        accepted = [await two.accept() for _ in peers]
        with memory(payload) as region:
            futures = [peer.post_send(region, offset=0, length=len(payload)) for peer in peers for _ in range(4)]
            await until(lambda: two.dropped_packets)  # more is sent than there is room for
            # How many fit depends on the kernel's timing: incomplete messages use memory, too.
            await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait(futures, timeout=1)  # the others are refused, or wait for longer than this
            early = [future.result() for future in futures if future.done()]
            assert set(early) <= ({Status.OK, Status.REMOTE_ERROR_RNR} if retry < 7 else {Status.OK})
            assert len(early) < len(futures) or Status.REMOTE_ERROR_RNR in early

            async def take(peer: Peer) -> int:
                """Release all messages until the opener has closed."""
                taken = 0
                try:
                    while True:
                        with await peer.recv() as message:
                            assert message.gather() == payload
                            taken += 1
                except PeerError:
                    return taken

            taking = [asyncio.ensure_future(take(peer)) for peer in accepted]
            statuses = await asyncio.gather(*futures)
            for peer in peers:  # it continues; a request that is refused now is ahead of `take`
                while (status := await peer.post_send(region, offset=0, length=len(payload))) is not Status.OK:
                    assert status is Status.REMOTE_ERROR_RNR
                    assert retry < 7
            await asyncio.gather(*(one.close() for one in openers))
            assert sum(await asyncio.gather(*taking)) == statuses.count(Status.OK) + 4
            assert retry < 7 or set(statuses) == {Status.OK}


async def test_on_event__a_close_that_is_not_handled_yet_ends_a_send_in_a_peer_error() -> None:
    """The core may process the other end's CLOSE a turn before the peer does."""
    async with pair(config=PLAIN) as (one, _, here, _):
        core = one._engine.core.peer(here.number)
        goodbye = Close(core.own_context, core.remote_context).encode()
        one._engine.core.handle_packets([], controls=[(goodbye, core.address, time.monotonic())], now=time.monotonic())
        one._engine.driver.wake()
        with pytest.raises(PeerError, match="closed by the other end"):
            await send(here, b"too late")
