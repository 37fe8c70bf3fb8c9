"""srd.secure.noise against the public test vectors of cacophony, and every bit of a handshake flipped."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from srd.proto.base.errors import PacketError
from srd.secure.noise import IKPSK2, HandshakeState, Pattern, agree_untrusted, public_bytes

FILE = json.loads((Path(__file__).parent / "cacophony.json").read_text())
VECTORS = {vector["protocol_name"]: vector for vector in FILE["vectors"]}
PATTERNS = {"IK": Pattern("IK", (("e", "es", "s", "ss"), ("e", "ee", "se"))), "IKpsk2": IKPSK2}


def private(vector: dict[str, Any], name: str) -> X25519PrivateKey:
    return X25519PrivateKey.from_private_bytes(bytes.fromhex(vector[name]))


def end(pattern: Pattern, vector: dict[str, Any], *, role: str) -> HandshakeState:
    ephemeral = private(vector, f"{role}_ephemeral")
    remote = vector.get(f"{role}_remote_static")
    return HandshakeState(
        pattern,
        initiator=role == "init",
        prologue=bytes.fromhex(vector[f"{role}_prologue"]),
        static=private(vector, f"{role}_static"),
        remote_static=bytes.fromhex(remote) if remote else None,
        psk=bytes.fromhex(vector[f"{role}_psks"][0]) if pattern.has_psk else None,
        new_key=lambda: ephemeral,
    )


@pytest.mark.parametrize("name", VECTORS)
def test_vectors(name: str) -> None:
    vector = VECTORS[name]
    pattern = PATTERNS[name.split("_")[1]]
    one, other = end(pattern, vector, role="init"), end(pattern, vector, role="resp")
    messages = [(bytes.fromhex(each["payload"]), bytes.fromhex(each["ciphertext"])) for each in vector["messages"]]
    for payload, ciphertext in messages[: len(pattern.messages)]:
        assert one.write_message(payload) == ciphertext
        assert other.read_message_untrusted(ciphertext) == payload
        one, other = other, one
    assert one.is_complete
    assert one.transcript == other.transcript == bytes.fromhex(vector["handshake_hash"])
    writer, reader = one, other  # whose turn it would be
    for index, (payload, ciphertext) in enumerate(messages[len(pattern.messages) :]):
        (key, _), (_, same) = writer.split(), reader.split()
        assert key == same
        nonce = bytes(4) + (index // 2).to_bytes(8, "big")
        assert AESGCM(key).encrypt(nonce, payload, b"") == ciphertext
        writer, reader = reader, writer


def test_vectors__are_there() -> None:
    assert set(VECTORS) == {"Noise_IKpsk2_25519_AESGCM_SHA256", "Noise_IK_25519_AESGCM_SHA256"}


PSK = bytes(range(32))
STATICS = X25519PrivateKey.from_private_bytes(bytes([1]) * 32), X25519PrivateKey.from_private_bytes(bytes([2]) * 32)


def ends(
    *, psks: tuple[bytes, bytes] = (PSK, PSK), prologues: tuple[bytes, bytes] = (b"", b"")
) -> list[HandshakeState]:
    remote = public_bytes(STATICS[1])
    return [
        HandshakeState(
            IKPSK2, initiator=True, prologue=prologues[0], static=STATICS[0], remote_static=remote, psk=psks[0]
        ),
        HandshakeState(IKPSK2, initiator=False, prologue=prologues[1], static=STATICS[1], psk=psks[1]),
    ]


def test_read_message__of_another_psk_or_prologue() -> None:
    one, other = ends(psks=(PSK, bytes(32)))
    other.read_message_untrusted(one.write_message(b""))
    with pytest.raises(PacketError):
        one.read_message_untrusted(other.write_message(b""))
    one, other = ends(prologues=(b"a", b"b"))
    with pytest.raises(PacketError):
        other.read_message_untrusted(one.write_message(b""))


@pytest.mark.parametrize("public", [bytes(32), bytes([1]) + bytes(31)])
def test_agree__of_small_order(public: bytes) -> None:
    with pytest.raises(PacketError, match="small order"):
        agree_untrusted(STATICS[0], public)
