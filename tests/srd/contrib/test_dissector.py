"""The Wireshark dissector on conversations: what it says of each packet's place in them, by real tshark."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from netns.observe.pcapng import PcapngFile
from srd.contrib.scapy import SRD, SRDData, SRDProtected
from srd.proto.wire.control import (
    Accept,
    Ack,
    Close,
    Closed,
    Control,
    Hello,
    Nack,
    PathReport,
    Probe,
    Refuse,
    Reset,
    Retry,
    SecureAccept,
)
from srd.proto.wire.data import ABORTED, VERSION
from srd.proto.wire.protected import KEY_PHASE
from srd.proto.wire.status import Status
from tests.srd.contrib.tshark import Fields, Frame, dissect, ethernet, tshark, write

pytestmark = pytest.mark.long

ONE, OTHER = 0xAAAA_0000_0000_0001, 0xBBBB_0000_0000_0002  # contexts of the initiator and the responder
SIZE = 600
PAYLOAD = b"p" * (SIZE - 56)


def there(data: bytes | Control, *, path: int = 0) -> Frame:
    """Return a packet of the initiator, over one of its paths."""
    return Frame(data if isinstance(data, bytes) else data.encode(), source=("10.0.1.1", 40000 + path))


def back(data: bytes | Control, *, path: int = 0) -> Frame:
    """Return a packet of the responder, from the default port."""
    frame = there(data, path=path)
    return replace(frame, source=frame.destination, destination=frame.source)


def data(psn: int, *, path: int = 0, sequence: int | None = None, flags: int = 0, payload: bytes = PAYLOAD) -> Frame:
    prefix = SRD(context=OTHER, path=path, path_sequence=psn if sequence is None else sequence, flags=flags)
    return there(bytes(prefix / SRDData(psn=psn, length=99 * 544, offset=544 * psn) / payload), path=path)


def ack(cumulative: int, bitmap: int = 0, *, flags: int = 0, reports: tuple[PathReport, ...] = ()) -> Frame:
    return back(Ack(ONE, cumulative, bitmap, 1 << 20, 1 << 10, reports, flags))


def report(path: int, sequence: int, *, duplicates: int = 0) -> PathReport:
    return PathReport(path, sequence, 0, 500, 1, duplicates)


HELLO = Hello(ONE, 1, 2, 3, 64, SIZE)
OPENING = (
    there(HELLO),
    back(Retry(ONE, bytes(24), 0, SIZE)),
    there(replace(HELLO, cookie=bytes(24))),
    back(Accept(ONE, OTHER, 1, 2, 3, 64, SIZE)),
)
SECURE = (
    there(replace(HELLO, security=2)),
    back(Retry(ONE, bytes(24), 0, SIZE, bytes(32))),
    there(replace(HELLO, security=2, cookie=bytes(24), message=bytes(90))),
    back(SecureAccept(ONE, bytes(90))),
)


def protected(context: int, counter: int, *, flags: int = 0) -> bytes:
    return bytes(SRD(context=context, path_sequence=counter, flags=flags) / SRDProtected(data=bytes(40)))


@dataclass(frozen=True, slots=True)
class Case:
    """Frames, and what is said of the last one: fields with their value, or None for fields that it lacks."""

    frames: tuple[Frame, ...]
    wanted: dict[str, str | None]
    info: str = ""
    """What the info column contains."""


THREE_MORE = "The receiver got 3 more packets that it had already"
AT_3_MS = replace(data(1, path=3, sequence=0), at_us=9_500)
CASES = {
    "first transmission": Case(
        (*OPENING, data(0), data(1)),
        {"srd.analysis.retransmission": None, "srd.analysis.previous_not_captured": None, "srd.stream": "0"},
        "DATA: SEND message 0, 544 bytes at offset 544 of 53856 bytes, PSN 1, path 0",
    ),
    "retransmission": Case(
        (*OPENING, data(0), data(1), data(2), AT_3_MS),
        {
            "srd.analysis.retransmission": "",
            "srd.analysis.retransmission_of": "6",
            "srd.analysis.retransmission_after": "0.004500000",
            "srd.analysis.transmissions": "2",
            "srd.analysis.spurious_retransmission": None,
            "srd.analysis.duplicate": None,
        },
        "[Retransmission of #6] DATA: SEND message 0",
    ),
    "third transmission": Case(
        (*OPENING, data(1), data(1, path=3), data(1, path=4)),
        {"srd.analysis.retransmission_of": "6", "srd.analysis.transmissions": "3"},
    ),
    "same datagram": Case(
        (*OPENING, data(0), data(1), data(1)),
        {"srd.analysis.duplicate": "", "srd.analysis.duplicate_of": "6", "srd.analysis.retransmission": None},
        "[Duplicate of #6] DATA",
    ),
    "same PSN to another peer": Case(
        (data(1), replace(AT_3_MS, payload=AT_3_MS.payload[:15] + b"\7" + AT_3_MS.payload[16:])),
        {"srd.analysis.retransmission": None},
    ),
    "after its ack": Case(
        (*OPENING, data(0), data(1), ack(2), data(1, path=1)),
        {"srd.analysis.spurious_retransmission": "", "srd.analysis.acked_in": "7"},
        "[Spurious retransmission of #6] DATA",
    ),
    "after its selective ack": Case(
        (*OPENING, data(0), data(1), ack(0, 0b10), data(1, path=1)),
        {"srd.analysis.spurious_retransmission": "", "srd.analysis.acked_in": "7"},
    ),
    "not acknowledged yet": Case(
        (*OPENING, data(0), data(1), ack(0, 0b10), data(0, path=1)),
        {"srd.analysis.spurious_retransmission": None, "srd.analysis.retransmission": ""},
    ),
    "gap": Case(
        (*OPENING, data(0), data(3)),
        {"srd.analysis.previous_not_captured": "", "srd.analysis.gap": "2", "srd.analysis.out_of_order": None},
    ),
    "out of order": Case(
        (*OPENING, data(0), data(3), data(2)),
        {"srd.analysis.out_of_order": "", "srd.analysis.previous_not_captured": None},
    ),
    "aborted": Case(
        (*OPENING, there(bytes(SRD(context=OTHER, flags=ABORTED) / SRDData(immediate=Status.REMOTE_ERROR_RNR)))),
        {"srd.data.message_aborted": "", "srd.data.status": "10", "srd.malformed": None},
        "SEND message 0 ABORTED by its sender: REMOTE_ERROR_RNR (10)",
    ),
    "ack": Case(
        (*OPENING, data(0), data(1), ack(3, 0b1_1101_0010, reports=(report(0, 1), report(9, 5)))),
        {
            "srd.ack.received": "4, 7, 9-11",
            "srd.ack.missing": "3, 5-6, 8",
            "srd.ack.report.frame": "6",
            "srd.ack.report.rtt": "0.000500000",
            "srd.peer_context": f"0x{OTHER:016x}",
            "srd.ack.receiver_not_ready": None,
            "srd.analysis.duplicates_reported": None,
        },
        "ACK: all PSNs below 3 and 4, 7, 9-11; missing 3, 5-6, 8; reports path 0, 9; credit 1048576 bytes, 1024 mess",
    ),
    "ack of whole bytes": Case((*OPENING, ack(0, 0xFFFF << 8)), {"srd.ack.received": "8-23", "srd.ack.missing": "0-7"}),
    "not ready": Case((*OPENING, ack(0, flags=1)), {"srd.ack.receiver_not_ready": ""}, "receiver NOT_READY"),
    "duplicates reported": Case(
        (*OPENING, ack(1, reports=(report(0, 1, duplicates=2),)), ack(1, reports=(report(0, 2, duplicates=5),))),
        {
            "srd.analysis.duplicates_reported": "",
            "_ws.expert.message": f"{THREE_MORE}: what was sent again, or duplicated in the network",
        },
    ),
    "duplicates before the capture": Case(
        (there(Probe(OTHER, ONE, 0, 0, 0)), ack(1, reports=(report(0, 1, duplicates=2),))),
        {"srd.analysis.duplicates_reported": None},
    ),
    "hello again": Case(
        (OPENING[0], there(HELLO, path=1)),
        {"srd.analysis.retransmission_of": "1"},
        f"[Retransmission of #1] HELLO: by context {ONE:#x} without cookie, proposes datagrams of 600 bytes",
    ),
    "hello with its cookie": Case(OPENING[:3], {"srd.analysis.retransmission": None}),
    "nack": Case(
        (*OPENING, back(Nack(ONE, 7, 10))), {"srd.refused": ""}, "NACK: message 7 refused: REMOTE_ERROR_RNR (10)"
    ),
    "refuse": Case(
        (OPENING[0], back(Refuse(ONE, 18, 3))),
        {"srd.refused": ""},
        "REFUSE: REMOTE_ERROR_FEATURE_MISMATCH (18), NEEDS_KEYS",
    ),
    "reset": Case((*OPENING, back(Reset(ONE, OTHER))), {"srd.reset_received": "", "srd.stream": "0"}),
    "close": Case((*OPENING, there(Close(OTHER, ONE))), {"srd.stream": "0"}, f"CLOSE: by context {ONE:#x}"),
    "closed": Case((*OPENING, there(Close(OTHER, ONE)), back(Closed(ONE, OTHER))), {"srd.stream": "0"}),
    "another peer": Case(
        (*OPENING, there(replace(HELLO, own_context=5))), {"srd.stream": "1", "srd.peer_context": None}
    ),
    "without its opening": Case(
        (data(0), there(Probe(OTHER, ONE, 0, 1, 0)), ack(1)),
        {"srd.stream": "0", "srd.peer_context": f"0x{OTHER:016x}"},
    ),
    "encrypted control packet": Case(
        (*SECURE, there(protected(OTHER, 0), path=2)),
        {
            "srd.stream": "0",
            "srd.peer_context": f"0x{ONE:016x}",
            "srd.tag": ":".join(["00"] * 16),
            "srd.malformed": None,
        },
        "PROTECTED: encrypted control packet 0",
    ),
    "encrypted control packet again": Case(
        (*SECURE, there(protected(OTHER, 0)), there(protected(OTHER, 0))), {"srd.analysis.duplicate_of": "5"}
    ),
    "encrypted data": Case(
        (*SECURE, there(protected(OTHER, 0)), data(0, payload=b"secret" + bytes(16))),
        {"srd.data.ciphertext": b"secret".hex(":"), "srd.tag": ":".join(["00"] * 16), "srd.stream": "0"},
        "SEND message 0, 6 bytes at offset 0 of 53856 bytes, PSN 0, path 0, payload encrypted",
    ),
    "encrypted data of the next keys": Case(
        (data(0, flags=KEY_PHASE),), {"srd.key_phase": "1", "srd.data.ciphertext": PAYLOAD[:-16].hex(":")}
    ),
    "encrypted data without its tag": Case(
        (*SECURE, there(protected(OTHER, 0)), data(0, payload=bytes(15))), {"srd.malformed": "", "srd.stream": None}
    ),
    "nowhere a default port": Case(
        tuple(
            replace(frame, source=("10.0.1.1", 40001), destination=("10.0.2.1", 40002)) for frame in (data(0), data(1))
        ),
        {"srd.data.psn": "1"},
    ),
    "malformed, ports known": Case(
        tuple(
            replace(frame, source=("10.0.1.1", 40001), destination=("10.0.2.1", 40002))
            for frame in (data(0), Frame(bytes([VERSION, 2])))
        ),
        {"srd.malformed": ""},
    ),
    "cut by the capture": Case((*OPENING, replace(data(0), captured_bytes=40)), {"srd.cut": "", "srd.malformed": None}),
    "payload cut by the capture": Case(
        (*OPENING, replace(data(0), captured_bytes=100)), {"srd.cut": None, "srd.malformed": None, "srd.data.psn": "0"}
    ),
}


FRAME_NUMBERS = {
    "srd.analysis.retransmission_of", "srd.analysis.duplicate_of", "srd.analysis.acked_in", "srd.ack.report.frame",
}  # fmt: skip


def apart(frame: Frame, *, case: int, index: int) -> Frame:
    """Return a frame of a case, so that it has nothing in common with those of other cases."""
    payload = frame.payload
    for context in (ONE, OTHER):
        payload = payload.replace(
            context.to_bytes(8, "big"),
            context.to_bytes(8, "big")[:2] + payload_mark(case) + context.to_bytes(8, "big")[4:],
        )
    source, destination = (
        (host.replace("10.0.", f"10.{case}."), port) for host, port in (frame.source, frame.destination)
    )
    at_us = case * 1_000_000 + (frame.at_us or index * 1000) + 1
    return replace(frame, payload=payload, source=source, destination=destination, at_us=at_us)


def payload_mark(case: int) -> bytes:
    """Return the third and the fourth byte of a case's contexts."""
    return case.to_bytes(2, "big")


@pytest.fixture(scope="module")
def dissected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Fields, str]]:
    """What is said of each case's last frame, numbered as if the case was alone: all are in one capture."""
    frames = [
        apart(frame, case=case, index=index)
        for case, each in enumerate(CASES.values(), 1)
        for index, frame in enumerate(each.frames)
    ]
    path = write(tmp_path_factory.mktemp("cases") / "all.pcapng", frames)
    shown, lines = dissect(path), tshark("-r", path).splitlines()
    found, first = {}, 0
    for case, (name, each) in enumerate(CASES.items(), 1):
        end = first + len(each.frames)
        fields, line = shown[end - 1][-1], lines[end - 1]
        for number in re.findall(r"#(\d+)", line):
            line = line.replace(f"#{number}", f"#{int(number) - first}")
        for field in FRAME_NUMBERS & fields.keys():
            fields[field] = [str(int(value) - first) for value in fields[field]]
        if "srd.stream" in fields:
            fields["srd.stream"] = [str(int(fields["srd.stream"][0]) - int(shown[first][0]["srd.stream"][0]))]
        mark = payload_mark(case).hex()
        found[name] = (
            {key: [alone(value, mark=mark) for value in values] for key, values in fields.items()},
            alone(line, mark=mark),
        )
        first = end
    return found


def alone(text: str, *, mark: str) -> str:
    """Return a text with the contexts of the case as it has them."""
    return text.replace(f"aaaa{mark}", "aaaa0000").replace(f"bbbb{mark}", "bbbb0000")


@pytest.mark.parametrize("name", CASES)
def test_conversation(name: str, dissected: dict[str, tuple[Fields, str]]) -> None:
    shown, line = dissected[name]
    for field, value in CASES[name].wanted.items():
        assert shown.get(field, [None])[0] == value, (field, shown)
    assert CASES[name].info in line


def test_segment_train__is_split(tmp_path: Path) -> None:
    """What the kernel joined, of data with and without a known size, and of control packets."""
    burst = [data(psn).payload for psn in range(4)] + [data(4, payload=b"the end").payload]
    controls = [protected(OTHER, 8), protected(OTHER, 9)]
    acks = [Ack(ONE, 5, 2 * bit, 1, 2, ()).encode() for bit in range(2)]
    frames = [
        there(b"".join(burst)),
        *OPENING,
        there(b"".join(burst)),
        *map(there, (b"".join(controls), b"".join(acks))),
    ]
    path = write(tmp_path / "trains.pcapng", frames)
    shown = dissect(path)
    assert [len(each) for each in shown] == [5, 1, 1, 1, 1, 5, 2, 2]
    assert [each["srd.data.psn"] for each in shown[0]] == [[str(psn)] for psn in range(5)]
    assert [each["srd.analysis.duplicate_of"] for each in shown[5]] == [["1"]] * 5
    assert shown[5][4]["srd.data.payload"] == [b"the end".hex(":")]
    assert [each["srd.path_sequence"] for each in shown[6]] == [["8"], ["9"]]
    assert [each["srd.ack.bitmap_length"] for each in shown[7]] == [["0"], ["1"]]
    assert "[5 packets in one segment train] DATA: SEND message 0" in tshark("-r", path)


def test_second_pass__says_the_same(tmp_path: Path) -> None:
    """As Wireshark, which dissects a packet whenever it is shown; but conversations are known from the beginning."""
    path = write(tmp_path / "again.pcapng", (*OPENING, data(0), data(1), data(1, path=1), data(1, path=1), ack(2, 4)))
    once, twice = dissect(path), dissect(path, "-2")
    assert [set(packet) - set(first) for (packet,), (first,) in zip(twice, once, strict=True)] == [
        {"srd.peer_context"} if index < 3 else set() for index in range(len(once))
    ]
    assert [first for (first,) in once] == [
        {name: values for name, values in packet.items() if name in first}
        for (packet,), (first,) in zip(twice, once, strict=True)
    ]


def test_icmp__quotes_a_packet_that_was_not_sent_again(tmp_path: Path) -> None:
    """Port unreachable, with the first bytes of the datagram that it is about."""
    sent = data(0)
    quoted = ethernet(sent)[14 : 14 + 28 + 60]
    error = ethernet(replace(back(b""), payload=bytes([3, 3]) + bytes(6) + quoted))
    icmp = error[:23] + b"\x01" + error[24:34] + error[42:]  # no UDP header
    icmp = icmp[:16] + (len(icmp) - 14).to_bytes(2, "big") + icmp[18:]
    path = tmp_path / "icmp.pcapng"
    with PcapngFile(path, interfaces=("test",), comment="") as file:
        for frame in (*map(ethernet, (*OPENING, sent)), icmp):
            file.packet(frame, interface=0, at_ns=10**18, length_bytes=len(frame))
    (shown,) = dissect(path)[-1]
    assert shown["srd.data.psn"] == ["0"]
    assert not any(name.startswith("srd.analysis") for name in shown)
    line = tshark("-r", path).splitlines()[-1]
    assert "Destination unreachable (Port unreachable)" in line
    assert "srd.malformed" not in shown


def test_heuristic__leaves_others_alone(tmp_path: Path) -> None:
    others = [bytes([VERSION, 1]), bytes([VERSION, 1]) + bytes(100), bytes(100), bytes([VERSION, 0x63]) + bytes(30)]
    frames = [Frame(payload, source=("10.0.1.1", 40001), destination=("10.0.2.1", 40002)) for payload in others]
    assert dissect(write(tmp_path / "other.pcapng", frames)) == [[]] * 4
