"""The first messages over a peer: codecs, and what a document's nonce is bound to."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nitro_emu.errors import AbiError
from nitro_emu.peers.introduction import VfHello, binding, hello_untrusted, pack_welcome, welcome_untrusted

GIDS = st.binary(min_size=16, max_size=16)
HELLOS = st.builds(
    VfHello, st.integers(0, (1 << 32) - 1), GIDS, GIDS, st.binary(max_size=100), st.integers(0, (1 << 64) - 1)
)


@given(HELLOS)
def test_hello__round_trip(hello: VfHello) -> None:
    assert hello_untrusted(hello.pack()) == hello


@given(st.binary(max_size=100))
def test_welcome__round_trip(document: bytes) -> None:
    assert welcome_untrusted(pack_welcome(document)) == document


@given(st.binary(max_size=60))
def test_anything__is_a_message_or_an_abi_error(message: bytes) -> None:
    for parse in (hello_untrusted, welcome_untrusted):
        try:
            parse(message)
        except AbiError as error:
            assert str(error)  # noqa: PT017 - either is right


@pytest.mark.parametrize("cut", [0, 1, 47])
def test_hello__cut_off_is_refused(cut: int) -> None:
    with pytest.raises(AbiError, match="hello"):
        hello_untrusted(VfHello(1, bytes(16), bytes(16)).pack()[:cut])


def test_version__another_one_is_refused() -> None:
    for message, parse in (
        (VfHello(1, bytes(16), bytes(16)).pack(), hello_untrusted),
        (pack_welcome(b""), welcome_untrusted),
    ):
        with pytest.raises(AbiError, match="version: 2 is not 1"):
            parse(b"\2" + message[1:])


def test_binding__differs_by_key_context_and_role() -> None:
    ends = [(b"k" * 32, 1), (b"l" * 32, 1), (b"k" * 32, 2), (b"l" * 32, 2), (b"", 1)]
    nonces = [
        binding(initiator=one, responder=other, attester_initiates=role)
        for one, other in itertools.product(ends, repeat=2)
        for role in (False, True)
    ]
    assert len(set(nonces)) == len(nonces)
    assert {len(nonce) for nonce in nonces} == {48}
