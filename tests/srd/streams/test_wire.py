"""srd.streams.wire: the mark of a stream's messages, and what is none."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srd.errors import PacketError
from srd.streams import wire
from srd.streams.wire import Frame, FrameKind, ahead, frame_untrusted, key, low_bits

STREAMS = st.integers(0, (1 << 56) - 1)


@given(st.sampled_from(FrameKind), STREAMS, st.integers(0, 1 << 60))
def test_frame__is_what_was_encoded(kind: FrameKind, stream: int, offset: int) -> None:
    length = 5 if kind is FrameKind.DATA else 0
    marked = key(kind, stream=stream)
    assert 0 < marked < 1 << 64, "an ordinary message has key 0"
    assert frame_untrusted(marked, immediate=low_bits(offset), length=length) == Frame(kind, stream, offset % (1 << 32))


@given(st.integers(1, (1 << 64) - 1), st.none() | st.integers(0, (1 << 32) - 1), st.integers(0, 1 << 30))
def test_frame__anything_else_is_one_error_bad_flow(message_key: int, immediate: int | None, length: int) -> None:
    try:
        frame = frame_untrusted(message_key, immediate=immediate, length=length)
    except PacketError:
        return
    assert key(frame.kind, stream=frame.stream) == message_key
    assert (frame.kind is FrameKind.DATA) == (length > 0)


@pytest.mark.parametrize(("kind", "length"), [(FrameKind.DATA, 0), (FrameKind.EOF, 1), (FrameKind.LIMIT, 1)])
def test_frame__payload_where_none_belongs_bad_flow(kind: FrameKind, length: int) -> None:
    with pytest.raises(PacketError, match=f"a stream's {kind.name} with {length} bytes"):
        frame_untrusted(key(kind, stream=0), immediate=0, length=length)


def test_frame__without_an_offset_bad_flow() -> None:
    with pytest.raises(PacketError, match="without an offset"):
        frame_untrusted(key(FrameKind.EOF, stream=0), immediate=None, length=0)


@given(st.integers(0, 1 << 60), st.integers(0, (1 << 32) - 1))
def test_ahead__is_the_distance(base: int, distance: int) -> None:
    assert ahead(low_bits(base + distance), of=base) == distance


def test_protocol_md__streams() -> None:
    _, title, section = (Path(wire.__file__).parents[1] / "PROTOCOL.md").read_text().partition("## 17. Streams")
    assert title
    kinds = re.findall(r"^\| (\d) \| ([A-Z]+) \| ", section, re.MULTILINE)
    assert {(int(value), name) for value, name in kinds} == {(kind.value, kind.name) for kind in FrameKind}
    constants = re.findall(r"^\| `([A-Z_]+)` \| ([0-9^,]+) \|", section, re.MULTILINE)
    assert len(constants) == 4
    for name, value in constants:
        base, _, exponent = value.replace(",", "").partition("^")
        assert getattr(wire, name) == int(base) ** int(exponent or 1), name
