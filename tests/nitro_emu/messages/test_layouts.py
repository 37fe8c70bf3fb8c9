"""What two programs say to each other, and what they must not believe."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nitro_emu.messages import layouts
from nitro_emu.messages.layouts import Hello, Kind, MessageError, Refuse, Welcome, Window, Written

U32 = st.integers(0, (1 << 32) - 1)
NONCE = st.binary(min_size=layouts.NONCE_BYTES, max_size=layouts.NONCE_BYTES)
WINDOW = st.builds(
    Window,
    rkey=U32,
    address=st.integers(0, 1 << 63),
    slots=st.integers(1, layouts.MAX_SLOTS),
    slot_bytes=st.integers(1, layouts.MAX_SLOT_BYTES),
    packet_bytes=st.integers(layouts.MIN_PACKET_BYTES, (1 << 32) - 1),
)
PARSERS: list[Callable[[memoryview], object]] = [
    layouts.kind_untrusted,
    layouts.hello_untrusted,
    layouts.welcome_untrusted,
    layouts.refuse_untrusted,
    layouts.data_immediate_untrusted,
    layouts.written_untrusted,
    layouts.credit_untrusted,
]


@given(st.builds(Hello, st.just(layouts.VERSION), U32, NONCE, WINDOW), st.builds(Welcome, NONCE, U32, WINDOW))
def test_hello_and_welcome__come_back(hello: Hello, welcome: Welcome) -> None:
    assert layouts.hello_untrusted(memoryview(layouts.pack_hello(hello))) == hello
    assert layouts.welcome_untrusted(memoryview(layouts.pack_welcome(welcome))) == welcome
    assert len(layouts.pack_hello(hello)) < layouts.MIN_PACKET_BYTES


@given(st.builds(Written, st.integers(0, 65535), U32, st.none() | U32), st.integers(0, 65535), st.none() | U32)
def test_messages__come_back(written: Written, slot: int, immediate: int | None) -> None:
    assert layouts.written_untrusted(memoryview(layouts.pack_written(written))) == written
    assert layouts.credit_untrusted(memoryview(layouts.pack_credit(slot))) == slot
    data = memoryview(layouts.pack_data_header(immediate) + b"payload")
    assert layouts.data_immediate_untrusted(data) == immediate
    assert bytes(data[layouts.DATA_BYTES :]) == b"payload"


@given(NONCE, st.text())
def test_refuse__is_cut_to_a_packet(nonce: bytes, reason: str) -> None:
    packet = layouts.pack_refuse(Refuse(nonce, reason))
    assert len(packet) < layouts.MIN_PACKET_BYTES
    said = layouts.refuse_untrusted(memoryview(packet))
    assert said.nonce == nonce
    assert said.reason[:10] == reason.encode(errors="replace").decode()[:10]


def test_hello_untrusted__another_version_is_known_by_its_number() -> None:
    packet = bytearray(layouts.pack_hello(Hello(7, 1, bytes(16), Window(1, 1, 1, 1, 512))))
    assert layouts.hello_untrusted(memoryview(packet)[:23]).version == 7


@given(st.sampled_from(PARSERS), st.binary(max_size=80), st.sampled_from(Kind))
def test_parsers__raise_message_error_or_return(parse: Callable[[memoryview], object], body: bytes, kind: Kind) -> None:
    for packet in (body, bytes([kind]) + body):
        try:
            parse(memoryview(packet))
        except MessageError:
            continue


@pytest.mark.parametrize(
    "window",
    [
        Window(1, 0, 0, 1, 512),
        Window(1, 0, layouts.MAX_SLOTS + 1, 1, 512),
        Window(1, 0, 1, 0, 512),
        Window(1, 0, 1, layouts.MAX_SLOT_BYTES + 1, 512),
        Window(1, 0, 1, 1, 511),
        Window(1, (1 << 64) - 10, 2, 6, 512),
    ],
)
def test_welcome_untrusted__an_impossible_window_bad_flow(window: Window) -> None:
    with pytest.raises(MessageError):
        layouts.welcome_untrusted(memoryview(layouts.pack_welcome(Welcome(bytes(16), 1, window))))
