"""Connections between two devices of a card: messages of any length, and every end."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path
from typing import Any

import pytest

from devmem import Region, RegionError
from nitro_emu.aio import QpAddress, QueuePair, Status
from nitro_emu.messages import layouts, listener
from nitro_emu.messages import peer as peers
from nitro_emu.messages.layouts import Hello, Kind, Refuse, Welcome, Window, Written
from nitro_emu.messages.listener import connect
from srd.errors import PeerError, SrdError, UsageError
from tests.nitro_emu.messages.ends import SLOT_BYTES, SLOTS, Ends, opened, pair, receive, send
from tests.patience import PATIENCE_S
from tests.srd.loopback import content, open_files

SIZES = [0, 1, 26, 27, 5000, 8909, 8911, 9000, 70_000, SLOT_BYTES]


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no connection end because this machine is slow."""
    for name in ("CLOSE_TIMEOUT_S", "CLOSE_GRACE_S"):
        monkeypatch.setattr(peers, name, PATIENCE_S)
    monkeypatch.setattr(listener, "ANSWER_WITHIN_S", PATIENCE_S)


# -- messages -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size_bytes", SIZES)
async def test_send__arrives_in_both_directions(run_dir: Path, size_bytes: int) -> None:
    payload = content(size_bytes, seed=size_bytes)
    async with pair(run_dir) as (client, server):
        for here, there in ((client, server), (server, client)):
            for immediate in (None, 0, 0xFFFFFFFF):
                sending = asyncio.ensure_future(send(here, payload, immediate=immediate))
                with await there.recv() as message:
                    assert message.gather() == payload
                    assert message.immediate == immediate
                assert await sending is Status.OK
            assert there.landed_bytes == 3 * size_bytes


async def test_send__more_long_messages_than_slots(run_dir: Path) -> None:
    count, size = 40, 20_000
    payload = content(count * size, seed=5)
    async with pair(run_dir) as (client, server):
        with Region(len(payload)) as region:
            with region.view(0, length=len(payload)) as view:
                view[:] = payload
            sending = [
                client.post_send(region, offset=index * size, length=size, immediate=index) for index in range(count)
            ]
            held = [await server.recv() for _ in range(SLOTS)]
            arrived = {message.immediate: message.gather() for message in held}
            with pytest.raises(RegionError):
                region.close()
            for message in held:
                message.release()
                message.release()
            while len(arrived) < count:
                with await server.recv() as message:
                    arrived[message.immediate] = message.gather()
            assert arrived == {index: payload[index * size : (index + 1) * size] for index in range(count)}
            assert set(await asyncio.gather(*sending)) == {Status.OK}


async def test_send__cancelled_while_it_waits_for_a_slot(run_dir: Path) -> None:
    async with pair(run_dir) as (client, server):
        with Region(9000) as region:
            sending = [client.post_send(region, offset=0, length=9000, immediate=index) for index in range(SLOTS + 2)]
            held = [await server.recv() for _ in range(SLOTS)]
            (waiting,) = {*range(SLOTS + 2)} - {message.immediate or 0 for message in held} - {SLOTS + 1}
            sending[waiting].cancel()
            held[0].release()
            with await server.recv() as message:
                assert message.immediate == SLOTS + 1
            for message in held:
                message.release()
            assert {await future for future in sending if not future.cancelled()} == {Status.OK}


async def test_send__cancelled_just_before_a_slot_comes(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The credit is processed before the event loop calls the future's callbacks."""
    on_credit = peers.MessagePeer._on_credit_untrusted
    async with pair(run_dir) as (client, server):
        with Region(9000) as region:
            sending = [client.post_send(region, offset=0, length=9000, immediate=index) for index in range(SLOTS + 2)]

            def cancel_first(peer: peers.MessagePeer, slot: int) -> None:
                sending[SLOTS].cancel()
                on_credit(peer, slot)

            monkeypatch.setattr(peers.MessagePeer, "_on_credit_untrusted", cancel_first)
            for _ in range(SLOTS):
                (await server.recv()).release()
            with await server.recv() as message:
                assert message.immediate == SLOTS + 1
            assert {await future for future in sending if not future.cancelled()} == {Status.OK}


async def test_send__longer_than_a_slot_bad_flow(run_dir: Path) -> None:
    async with pair(run_dir) as (client, server):
        assert await send(client, bytes(SLOT_BYTES + 1)) is Status.REMOTE_ERROR_BAD_LENGTH
        sending = asyncio.ensure_future(send(client, b"next"))
        assert await receive(server) == b"next"
        assert await sending is Status.OK


async def test_send__out_of_bounds_bad_flow(run_dir: Path) -> None:
    async with pair(run_dir) as (client, _):
        with Region(4096) as region, pytest.raises(RegionError):
            client.post_send(region, offset=1, length=4096)


async def test_message__is_gone_after_its_release_bad_flow(run_dir: Path) -> None:
    async with pair(run_dir) as (client, server):
        assert await send(client, b"x") is Status.OK
        message = await server.recv()
        message.release()
        with pytest.raises(UsageError, match="was released"):
            message.gather()


async def test_connections__several_at_a_time_stay_apart(run_dir: Path) -> None:
    async with opened(run_dir) as ends:
        pairs = [await ends.pair() for _ in range(4)]
        for number, (client, _) in enumerate(pairs):
            assert await send(client, bytes([number]) * 20_000) is Status.OK
        for number, (client, server) in enumerate(pairs):
            assert await receive(server) == bytes([number]) * 20_000
            await client.close()
            assert await server.wait_ended() is Status.OK
            await server.close()


# -- the end --------------------------------------------------------------------------------------------------------


async def test_close__delivers_what_was_sent_and_says_so(run_dir: Path) -> None:
    async with pair(run_dir) as (client, server):
        with Region(9000) as region:
            sending = [client.post_send(region, offset=0, length=length) for length in (10, 9000)]
            await client.close()
            await client.close()
            assert await asyncio.gather(*sending) == [Status.OK, Status.OK]
        assert await server.wait_ended() is Status.OK
        assert {len(await receive(server)) for _ in range(2)} == {10, 9000}
        with pytest.raises(PeerError, match="closed by the other end") as caught:
            await server.recv()
        assert caught.value.status is Status.OK
        with Region(10) as region, pytest.raises(PeerError, match="closed by the other end"):
            server.post_send(region, offset=0, length=10)
        assert client.ended
        with Region(10) as region, pytest.raises(PeerError, match="closed"):
            client.post_send(region, offset=0, length=10)


async def test_close__flushes_what_the_other_end_does_not_take(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "CLOSE_TIMEOUT_S", 0.01)
    async with pair(run_dir) as (client, server):
        with Region(9000) as region:
            sending = [client.post_send(region, offset=0, length=9000) for _ in range(SLOTS + 1)]
            held = [await server.recv() for _ in range(SLOTS)]
            assert set(await asyncio.gather(*sending[:SLOTS])) == {Status.OK}
            await client.close()
            assert await sending[SLOTS] is Status.FLUSHED
        assert await server.wait_ended() is Status.OK
        for message in held:
            message.release()


async def test_end__a_program_that_is_gone(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its card answers that there is no such queue pair."""
    monkeypatch.setattr(peers, "TICK_S", 0.01)
    monkeypatch.setattr(peers, "SILENT_TICKS", 1_000_000)
    async with opened(run_dir) as ends:
        client, server = await ends.pair()
        waiting = asyncio.ensure_future(server.recv())
        await ends.client_device.close()
        assert await client.wait_ended() is Status.LOCAL_ERROR_QP_INTERNAL_ERROR
        with pytest.raises(PeerError, match="its program is gone"):
            await waiting
        assert await server.wait_ended() in {Status.REMOTE_ERROR_BAD_DEST_QPN, Status.REMOTE_ERROR_BAD_ADDRESS}
        await client.close()
        await server.close()


async def test_end__a_program_that_hangs(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its card takes the PINGs, but nobody answers them."""
    monkeypatch.setattr(peers, "TICK_S", 0.01)
    monkeypatch.setattr(peers.MessagePeer, "_pong", lambda _: None)
    async with pair(run_dir) as (client, server):
        assert server._timer is not None
        server._timer.cancel()  # a program that hangs asks for no sign of life either
        assert await client.wait_ended() is Status.LOCAL_ERROR_UNRESP_REMOTE
        with pytest.raises(PeerError, match="no packet from its program for"):
            await client.recv()
        assert not server.ended or await server.wait_ended() is not Status.OK


async def test_end__a_receiver_that_takes_nothing(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "TICK_S", 1000.0)  # only the tick of this test
    async with pair(run_dir) as (client, server):
        with Region(9000) as region:
            sending = [client.post_send(region, offset=0, length=9000) for _ in range(SLOTS + 1)]
            held = [await server.recv() for _ in range(SLOTS)]
            assert set(await asyncio.gather(*sending[:SLOTS])) == {Status.OK}
            monkeypatch.setattr(peers, "REQUEST_TIMEOUT_S", 0.0)
            client._tick()
            assert await client.wait_ended() is Status.LOCAL_ERROR_UNRESP_REMOTE
            assert await sending[SLOTS] is Status.LOCAL_ERROR_UNRESP_REMOTE
            for message in held:
                message.release()


async def test_close__leaves_no_descriptor(run_dir: Path) -> None:
    async with opened(run_dir) as ends:

        async def scenario() -> None:
            client, server = await ends.pair()
            for here, there in ((client, server), (server, client)):
                sending = asyncio.ensure_future(send(here, bytes(20_000)))
                assert len(await receive(there)) == 20_000
                assert await sending is Status.OK
            await client.close()
            await server.close()

        await scenario()
        gc.collect()
        before = open_files()
        for _ in range(5):
            await scenario()
        gc.collect()
        assert open_files() == before


# -- meeting --------------------------------------------------------------------------------------------------------


async def test_connect__nobody_listens_bad_flow(run_dir: Path) -> None:
    async with opened(run_dir) as ends:
        right = ends.target
        for wrong in (
            QpAddress(right.gid, right.qpn ^ 0x4000, right.qkey),
            QpAddress(right.gid, right.qpn, right.qkey ^ 1),
        ):
            with pytest.raises(PeerError, match=r"^nothing listens there"):
                await connect(ends.client_device, wrong, slots=1, slot_bytes=4096)


async def test_connect__a_queue_pair_that_does_not_answer_bad_flow(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "ANSWER_WITHIN_S", 0.2)
    async with opened(run_dir) as ends, await ends.server_device.queue_pair() as silent:
        with pytest.raises(PeerError, match=r"^no answer within"):
            await connect(ends.client_device, silent.address, slots=1, slot_bytes=4096)


async def test_connect__too_many_are_refused_bad_flow(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "MAX_PEERS", 1)
    async with opened(run_dir) as ends:
        client, server = await ends.pair()
        with pytest.raises(PeerError, match=r"^it has 1 peers already"):
            await ends.pair()
        await client.close()
        await server.close()
        client, server = await ends.pair()
        await client.close()
        await server.close()


async def test_connect__at_the_same_time_too_many_are_refused_bad_flow(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Peers that are being made count, too."""
    monkeypatch.setattr(listener, "MAX_PEERS", 2)
    create, both_said = peers.MessagePeer.create, asyncio.Event()

    async def create_late(*args: Any, **named: Any) -> peers.MessagePeer:
        if named["slots"] == SLOTS:  # the listener's
            await both_said.wait()
        return await create(*args, **named)

    async with opened(run_dir) as ends:
        client, _ = await ends.pair()
        monkeypatch.setattr(peers.MessagePeer, "create", create_late)
        connecting = [
            asyncio.ensure_future(connect(ends.client_device, ends.target, slots=1, slot_bytes=4096)) for _ in range(2)
        ]
        done, (accepted,) = await asyncio.wait(connecting, return_when=asyncio.FIRST_COMPLETED)
        assert [str(each.exception()) for each in done] == ["it has 2 peers already; try again later"]
        both_said.set()
        await (await accepted).close()
        await client.close()


async def test_connect__another_version_is_refused_bad_flow(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(run_dir) as ends:
        pack = layouts.pack_hello
        monkeypatch.setattr(layouts, "pack_hello", lambda hello: pack(Hello(2, hello.qkey, hello.nonce, hello.window)))
        with pytest.raises(PeerError, match=r"^it speaks version 1, not 2"):
            await connect(ends.client_device, ends.target, slots=1, slot_bytes=4096)


async def test_connect__the_server_is_closed_meanwhile_bad_flow(run_dir: Path) -> None:
    async with opened(run_dir) as ends:
        await ends.listener.close()
        with pytest.raises(SrdError, match="closed"):
            await ends.listener.accept()


async def test_listener__its_card_is_dead_bad_flow(run_dir: Path) -> None:
    async with opened(run_dir) as ends:
        accepting = asyncio.ensure_future(ends.listener.accept())
        await asyncio.sleep(0)
        await ends.server_device.close()
        with pytest.raises(SrdError, match="efa_1: the device is closed"):
            await accepting


# -- ends that break the rules --------------------------------------------------------------------------------------


class Hostile:
    """A client that has connected properly, and does what it wants then."""

    def __init__(self, ends: Ends, qp: QueuePair, server: Window, to: QpAddress) -> None:
        self.ends, self.qp, self.window, self.address = ends, qp, server, to

    @classmethod
    async def connected(cls, ends: Ends) -> Hostile:
        qp = await ends.client_device.queue_pair()
        to = await ends.client_device.remote(ends.target)
        hello = Hello(layouts.VERSION, qp.address.qkey, bytes(16), Window(1, 0, SLOTS, SLOT_BYTES, 8000))
        assert await qp.send(to, layouts.pack_hello(hello)) is Status.OK
        with await qp.recv() as message:
            welcome = layouts.welcome_untrusted(message.view)
            source = message.source
        return cls(ends, qp, welcome.window, QpAddress(source.gid, source.qpn, welcome.qkey))

    async def say(self, packet: bytes) -> None:
        to = await self.ends.client_device.remote(self.address)
        assert await self.qp.send(to, packet) is Status.OK

    async def write(self, slot: int, length: int, *, at: int = 0) -> None:
        to = await self.ends.client_device.remote(self.address)
        with Region(SLOT_BYTES) as region:
            memory = await self.ends.client_device.register(region)
            status = await self.qp.write(
                to,
                memory.slice(length=length),
                rkey=self.window.rkey,
                remote_address=self.window.address + at,
                immediate=slot,
            )
            assert status is Status.OK
            await memory.close()


@pytest.mark.parametrize(
    "packet",
    [
        b"",
        b"\xff",
        bytes([Kind.DATA]),
        bytes([Kind.HELLO]),
        layouts.pack_written(Written(SLOTS, 10, None)),
        layouts.pack_written(Written(0, SLOT_BYTES + 1, None)),
        layouts.pack_credit(0),
        layouts.pack_credit(65535),
    ],
)
async def test_hostile__what_makes_no_sense_ends_the_connection_bad_flow(run_dir: Path, packet: bytes) -> None:
    async with opened(run_dir) as ends:
        hostile = await Hostile.connected(ends)
        server = await ends.listener.accept()
        await hostile.say(packet)
        assert await server.wait_ended() is Status.REMOTE_ERROR_BAD_STATUS
        await server.close()
        client, again = await ends.pair()
        await client.close()
        await again.close()


async def test_hostile__slots_that_are_in_use_bad_flow(run_dir: Path) -> None:
    async with opened(run_dir) as ends:
        hostile = await Hostile.connected(ends)
        server = await ends.listener.accept()
        await hostile.write(1, 100)
        await hostile.say(layouts.pack_written(Written(1, 100, 7)))
        with await server.recv() as message:
            assert (message.length, message.immediate) == (100, 7)
            await hostile.write(1, 100)
            assert await server.wait_ended() is Status.REMOTE_ERROR_BAD_STATUS


@pytest.mark.parametrize(("slot", "said"), [(0, 99), (SLOTS, 100), (1 << 31, 100)])
async def test_hostile__writes_that_do_not_fit_bad_flow(run_dir: Path, slot: int, said: int) -> None:
    async with opened(run_dir) as ends:
        hostile = await Hostile.connected(ends)
        server = await ends.listener.accept()
        await hostile.say(layouts.pack_written(Written(0, said, None)))
        await hostile.write(slot, 100)
        assert await server.wait_ended() is Status.REMOTE_ERROR_BAD_STATUS
        await server.close()


async def test_hostile__rewrites_what_it_has_sent_without_effect(run_dir: Path) -> None:
    """Or a file's hash could be of other bytes than those that are stored."""
    async with opened(run_dir) as ends:
        hostile = await Hostile.connected(ends)
        server = await ends.listener.accept()
        copied = ends.server_device.bytes_copied
        for _ in range(2):
            await hostile.write(0, 9000)
            await hostile.say(layouts.pack_written(Written(0, 9000, 7)))
            with await server.recv() as message:
                to = await ends.client_device.remote(hostile.address)
                window = hostile.window
                rewritten = await hostile.qp.write(to, b"!" * 8000, rkey=window.rkey, remote_address=window.address)
                assert rewritten is Status.OK
                assert message.gather() == bytes(9000)
        assert ends.server_device.bytes_copied - copied >= 2 * 9000
        await server.close()


async def test_stranger__is_not_heard(run_dir: Path) -> None:
    """It knows the queue pair's number and key, but is another queue pair."""
    async with opened(run_dir) as ends:
        client, server = await ends.pair()
        async with await ends.client_device.queue_pair() as stranger:
            to = await ends.client_device.remote(server.qp.address)
            for packet in (layouts.pack_data_header(None), bytes([Kind.CLOSE]), b"\xff"):
                assert await stranger.send(to, packet) is Status.OK
        assert await send(client, b"x") is Status.OK
        assert await receive(server) == b"x"
        assert not server.ended
        await client.close()
        await server.close()


async def test_stranger__who_writes_to_the_window_is_not_heard(run_dir: Path) -> None:
    async with opened(run_dir) as ends:
        hostile = await Hostile.connected(ends)
        server = await ends.listener.accept()
        async with await ends.client_device.queue_pair() as stranger:
            client, hostile.qp = hostile.qp, stranger
            await hostile.write(0, 50)
            hostile.qp = client
        await hostile.write(0, 100)
        await hostile.say(layouts.pack_written(Written(0, 100, None)))
        with await server.recv() as message:
            assert message.length == 100
        await server.close()


async def test_connect__only_the_answer_to_its_own_hello_counts(run_dir: Path) -> None:
    async with opened(run_dir) as ends, await ends.server_device.queue_pair() as fake:
        connecting = asyncio.ensure_future(connect(ends.client_device, fake.address, slots=1, slot_bytes=4096))
        with await fake.recv() as message:
            hello = layouts.hello_untrusted(message.view)
            client = QpAddress(message.source.gid, message.source.qpn, hello.qkey)
        to = await ends.server_device.remote(client)
        window = Window(1, 0, 1, 1, 512)
        for answer in (
            b"",
            layouts.pack_welcome(Welcome(bytes(16), 1, window)),
            layouts.pack_refuse(Refuse(bytes(16), "is not asked")),
            layouts.pack_refuse(Refuse(hello.nonce, "is asked")),
        ):
            assert await fake.send(to, answer) is Status.OK
        with pytest.raises(PeerError, match=r"^it is asked"):
            await connecting


async def test_ping__asks_an_end_that_is_silent_and_any_packet_answers(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "TICK_S", 1000.0)  # only the ticks of this test
    async with opened(run_dir) as ends:
        hostile = await Hostile.connected(ends)
        server = await ends.listener.accept()
        for answer in (bytes([Kind.PONG]), layouts.pack_data_header(1), bytes([Kind.PING])):
            server._tick()
            server._tick()
            with await hostile.qp.recv() as message:
                assert message.gather() == bytes([Kind.PING])
            assert server._silent_ticks == 2
            await hostile.say(answer)
            await hostile.say(layouts.pack_data_header(None) + b"x")
            messages = [await server.recv() for _ in range(1 + (answer[0] == Kind.DATA))]
            assert server._silent_ticks == 0
            for received in messages:
                received.release()
        with await hostile.qp.recv() as message:
            assert message.gather() == bytes([Kind.PONG])
        for _ in range(peers.SILENT_TICKS + 1):
            server._tick()
        assert await server.wait_ended() is Status.LOCAL_ERROR_UNRESP_REMOTE
        await server.close()


async def test_window__is_not_written_to_after_the_close_bad_flow(run_dir: Path) -> None:
    async with opened(run_dir) as ends:
        hostile = await Hostile.connected(ends)
        server = await ends.listener.accept()
        await server.close()
        async with await ends.server_device.queue_pair() as other:
            to = await ends.client_device.remote(other.address)
            status = await hostile.qp.write(
                to, b"late" * 10, rkey=hostile.window.rkey, remote_address=hostile.window.address
            )
            assert status is Status.REMOTE_ERROR_BAD_ADDRESS
