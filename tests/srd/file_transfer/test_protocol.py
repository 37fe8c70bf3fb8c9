"""srd.file_transfer.protocol: valid messages, and that all others are rejected."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from srd.file_transfer.errors import TransferError
from srd.file_transfer.protocol import (
    CHUNK_BYTES,
    CONTROL_MESSAGE,
    FILE_HASHES,
    MAX_CONTROL_BYTES,
    MAX_DEPTH,
    MAX_DIGESTS,
    MAX_FILES,
    MAX_NAME_BYTES,
    MAX_PATH_BYTES,
    MAX_RANGES,
    MAX_RETRY_S,
    MAX_TEXT,
    MAX_TIME_NS,
    Offer,
    batches,
    decode_untrusted,
    digests_untrusted,
    encode,
    entries_untrusted,
    entry,
    holes_untrusted,
    offers_untrusted,
    path_untrusted,
    pipe_chunks_untrusted,
    ranges_untrusted,
    reason_of,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
FILE: dict[str, Any] = {"name": "a.bin", "size": 10, "transfer": "0123456789abcdef" * 2}
OFFER: dict[str, Any] = {"kind": "offer", "files": [FILE], "sender": "5" * 32, "chunk_bytes": CHUNK_BYTES}
OFFER |= {"retry_for_s": 60, "files_left": 2, "bytes_left": 7}
FILE_FIELDS = ("name", "size", "transfer", "mode", "mtime_ns", "if_differs", "directory", "pipe", "data_bytes")
OFFER_FIELDS = ("files", "sender", "chunk_bytes", "retry_for_s", "files_left", "bytes_left", "file_hash")


def offered(**changed: Any) -> Offer:
    """Parse an OFFER of one file, with changed fields of the file or of the message."""
    of_file = {key: value for key, value in changed.items() if key in FILE_FIELDS}
    of_message = {key: value for key, value in changed.items() if key not in FILE_FIELDS}
    (offer,) = offers_untrusted({**OFFER, "files": [{**FILE, **of_file}], **of_message}).offers
    return offer


# -- messages -------------------------------------------------------------------------------------------------------


@given(kind=st.text(), fields=st.dictionaries(st.text().filter(lambda key: key != "kind"), JSON, max_size=4))
def test_encode__decodes_to_the_same(kind: str, fields: dict[str, Any]) -> None:
    body = encode(kind, **fields)
    assert json.dumps(decode_untrusted(body)) == json.dumps({"kind": kind, **fields})  # NaN is not equal to itself


@given(body=st.binary(max_size=300) | st.text().map(str.encode) | JSON.map(lambda value: json.dumps(value).encode()))
@example(body=b"")
@example(body=b"[" * 5000)
@example(body=b"1" * 5000)
@example(body=b"\xff\xfe{")
@example(body=b'{"kind": 1}')
@example(body=b'{"kind": "offer", "kind": 2}')
@example(body=b"{" + b" " * MAX_CONTROL_BYTES)
def test_decode_untrusted__raises_transfer_error_or_returns_a_message(body: bytes) -> None:
    with suppress(TransferError):
        assert isinstance(decode_untrusted(body)["kind"], str)


def test_decode_untrusted__the_longest_message() -> None:
    body = b'{"kind": "x"}'.ljust(MAX_CONTROL_BYTES)
    assert decode_untrusted(body) == {"kind": "x"}
    with pytest.raises(TransferError, match=f"{MAX_CONTROL_BYTES + 1} bytes"):
        decode_untrusted(body + b" ")


@given(text=st.text(alphabet="\U0001f389\n\x1b", min_size=1).map(lambda text: text * 9000))
def test_encode__truncates_any_text_to_a_message(text: str) -> None:
    """A reason may quote the other end, and JSON makes twelve bytes of some characters."""
    assert text.startswith(decode_untrusted(encode("refuse", reason=text))["reason"])


def test_reason_of__is_one_line() -> None:
    assert reason_of({"reason": "a\x1b[2J\n"}, default="b") == r"a\x1b[2J\n"
    assert reason_of({"reason": ["\n"]}, default="b") == r"['\n']"
    assert reason_of({}, default="b") == "b"
    assert len(reason_of({"reason": "x" * 9000}, default="b")) == MAX_TEXT


# -- batches --------------------------------------------------------------------------------------------------------


@given(
    entries=st.lists(
        st.builds(
            lambda file, reason, name: entry(file=file, name=name or None, reason=None if name else reason, again=None),
            file=st.integers(0, 1 << 61),
            reason=st.text(alphabet="\U0001f389\n\x1b", max_size=3).map(lambda text: text * 600),
            name=st.text(alphabet="\x01\x7f\u00e9", max_size=3).map(lambda text: text * 1365),
        ),
        max_size=200,
    )
)
def test_batches__every_entry_once_in_messages_that_fit(entries: list[dict[str, Any]]) -> None:
    found = []
    for batch in batches(entries):
        body = encode("offer", files=batch, sender="5" * 32, chunk_bytes=1 << 20, retry_for_s=86400, files_left=1 << 61)
        assert len(body) <= MAX_CONTROL_BYTES
        assert 1 <= len(batch) <= MAX_FILES
        found += decode_untrusted(body)["files"]
    assert found == entries


@given(files=JSON | st.lists(st.fixed_dictionaries({}, optional={"file": JSON, "digest": st.text()}), max_size=4))
@example(files=[{"file": 0}] * (MAX_FILES + 1))
@example(files=[{"file": True}])
@example(files=[{"file": -1}])
def test_entries_untrusted__raises_transfer_error_or_returns_numbered_entries(files: object) -> None:
    with suppress(TransferError):
        entries = entries_untrusted({"kind": "end", "files": files})
        assert len(entries) <= MAX_FILES
        assert all(isinstance(each["file"], int) and each["file"] >= 0 for each in entries)


@given(message=st.fixed_dictionaries({"kind": st.just("hashes")}, optional={"first": JSON, "digests": JSON}))
@example(message={"kind": "hashes", "first": 0, "digests": ["0" * 32] * (MAX_DIGESTS + 1)})
@example(message={"kind": "hashes", "first": 0, "digests": ["0" * 31 + "\n"]})
@example(message={"kind": "hashes", "first": 1, "digests": ["0" * 32]})
def test_digests_untrusted__raises_transfer_error_or_returns_digests(message: dict[str, Any]) -> None:
    with suppress(TransferError):
        first, digests = digests_untrusted(message)
        assert first >= 0
        assert {len(digest) for digest in digests} <= {16}


@given(message=st.fixed_dictionaries({"kind": st.just("holes")}, optional={"first": JSON, "chunks": JSON}))
@example(message={"kind": "holes", "first": 0, "chunks": 0})
@example(message={"kind": "holes", "first": 1, "chunks": CONTROL_MESSAGE})
@example(message={"kind": "holes", "first": 1, "chunks": 2})
def test_holes_untrusted__raises_transfer_error_or_returns_chunks(message: dict[str, Any]) -> None:
    with suppress(TransferError):
        first, chunks = holes_untrusted(message)
        assert 0 <= first < first + chunks <= CONTROL_MESSAGE


@given(
    value=JSON | st.lists(st.lists(st.integers(-1, 9) | JSON, max_size=3), max_size=4),
    first=st.integers(0, 5),
    end=st.integers(5, 9),
)
@example(value=[[0, 1]] * (MAX_RANGES + 1), first=0, end=9)
@example(value=[[0, 1], [1, 1]], first=0, end=2)
@example(value=[[1, 1], [0, 1]], first=0, end=2)
def test_ranges_untrusted__raises_transfer_error_or_returns_ranges(value: object, first: int, end: int) -> None:
    with suppress(TransferError):
        ranges = ranges_untrusted(value, first=first, end=end)
        chunks = [chunk for start, count in ranges for chunk in range(start, start + count)]
        assert chunks == sorted(set(chunks))
        assert all(first <= chunk < end for chunk in chunks)


# -- offers ---------------------------------------------------------------------------------------------------------


FILES = (
    st.fixed_dictionaries(
        {key: st.just(value) for key, value in FILE.items()}, optional=dict.fromkeys(FILE_FIELDS[3:], JSON)
    )
    | JSON
)
CHANGED_FILES = st.fixed_dictionaries({}, optional=dict.fromkeys(FILE_FIELDS, JSON)).map(lambda more: {**FILE, **more})


@given(
    changed=st.fixed_dictionaries({}, optional=dict.fromkeys(OFFER_FIELDS, JSON)),
    files=st.none() | st.lists(FILES | CHANGED_FILES, max_size=4),
)
@example(changed={}, files=[{**FILE, "name": "\ud800"}])
@example(changed={}, files=[{**FILE, "size": -1}])
@example(changed={}, files=[{**FILE, "size": float("nan")}])
@example(changed={}, files=[{**FILE, "mode": 0o4755}])
@example(changed={}, files=[{"name": "a", "directory": True}])
@example(changed={}, files=[{"pipe": True, "transfer": FILE["transfer"]}])
@example(changed={}, files=[{**FILE, "pipe": True, "name": "../a"}])
@example(changed={"files_left": 0}, files=[FILE, {**FILE, "pipe": True, "size": 1 << 61, "if_differs": True}])
@example(changed={}, files=[{**FILE, "pipe": True}, FILE])
@example(changed={"files_left": 1}, files=[{**FILE, "pipe": True}])
@example(changed={}, files=[{**FILE, "data_bytes": 1 << 70}])
@example(changed={}, files=[{**FILE, "transfer": "../../../../../../../etc/passwd/"}])
@example(changed={}, files=[{**FILE, "transfer": "0" * 32 + "\n"}])
@example(changed={}, files=[FILE] * (MAX_FILES + 1))
@example(changed={"chunk_bytes": 1 << 10}, files=[{**FILE, "size": CONTROL_MESSAGE << 10}])
@example(changed={"sender": "0" * 33}, files=[FILE])
@example(changed={"bytes_left": -1}, files=[FILE])
@example(changed={"file_hash": "md5"}, files=[FILE])
@example(changed={"chunk_bytes": 0}, files=[FILE])
@example(changed={"file_hash": []}, files=[FILE])
@example(changed={"file_hash": {}}, files=[FILE])
def test_offers_untrusted__raises_transfer_error_or_returns_offers(
    changed: dict[str, Any], files: list[Any] | None
) -> None:
    message = {**OFFER, **changed} if files is None else {**OFFER, **changed, "files": files}
    try:
        offers = offers_untrusted(message)
    except TransferError as error:
        str(error).encode()
        return
    assert len(offers.offers) <= MAX_FILES
    for offer in offers.offers:
        assert not {"", ".", ".."} & set(offer.name.split("/"))
        assert 0 <= offer.chunks <= CONTROL_MESSAGE
        assert not offer.is_pipe or (offer is offers.offers[-1] and not offers.files_left)
        assert not offer.is_pipe or (offer.size, offer.if_differs, offer.is_directory) == (0, False, False)
        assert offer.data_bytes is None or 0 <= offer.data_bytes <= offer.size
        assert offer.mode is None or 0 <= offer.mode <= 0o777
        assert offer.is_directory is not bool(offer.transfer)
        assert offer.is_directory or re.fullmatch("[0-9a-f]{32}", offer.transfer)
        assert re.fullmatch("[0-9a-f]{32}", offer.sender)
        assert offer.file_hash in FILE_HASHES
        assert 1024 <= offer.chunk_bytes <= 1 << 24
        assert offer.size == int(offer.size) >= 0
    assert offers.files_left >= 0
    assert offers.bytes_left >= 0


@pytest.mark.parametrize(
    "odd",
    [{"mode": mode} for mode in (-1, 0o1777, 0o2755, 0o4755, "0o644", True)]
    + [{"mtime_ns": time_ns} for time_ns in (1.5, MAX_TIME_NS + 1, -MAX_TIME_NS - 1, "1")],
    ids=str,
)
def test_offers_untrusted__odd_metadata_refuses_one_file_alone_bad_flow(odd: dict[str, Any]) -> None:
    offers = offers_untrusted({**OFFER, "files": [{**FILE, **odd}, FILE, {"name": "d", "directory": True, **odd}]})
    assert [bool(offer.refusal) for offer in offers.offers] == [True, False, True]
    assert [offer.chunks for offer in offers.offers] == [1, 1, 0], (
        "the numbers of the others' chunks do not depend on it"
    )


@pytest.mark.parametrize("time_ns", [0, -1, 10_413_792_000 * 10**9, MAX_TIME_NS, -MAX_TIME_NS], ids=str)
def test_offers_untrusted__any_time_that_a_file_system_may_have(time_ns: int) -> None:
    """A day in 2300, for example, has nanoseconds of more than 63 bits."""
    offer = offered(mtime_ns=time_ns)
    assert (offer.mtime_ns, offer.refusal) == (time_ns, "")


def test_offers_untrusted__what_it_says() -> None:
    offers = offers_untrusted({**OFFER, "files": [{**FILE, "mode": 0o640}, {"name": "d/e", "directory": True}]})
    assert (offers.files_left, offers.bytes_left, offers.total_bytes) == (2, 7, 17)
    assert offers.offers == (
        Offer("a.bin", 10, CHUNK_BYTES, FILE["transfer"], retry_for_s=60, mode=0o640, sender="5" * 32),
        Offer("d/e", 0, CHUNK_BYTES, "", retry_for_s=60, is_directory=True, sender="5" * 32),
    )


PIPE = {"pipe": True, "transfer": FILE["transfer"]}


def test_offers_untrusted__a_pipe() -> None:
    offers = offers_untrusted({**OFFER, "files": [FILE, PIPE], "files_left": 0, "bytes_left": 0})
    pipe = offers.offers[1]
    assert (pipe.name, pipe.is_pipe, pipe.size, pipe.chunks) == ("-", True, 0, CONTROL_MESSAGE)
    assert offers.total_bytes is None
    named = offers_untrusted({**OFFER, "files": [{**PIPE, "name": "d/a.tar"}], "files_left": 0}).offers[0]
    assert (named.name, named.is_pipe) == ("d/a.tar", True)


@given(end=st.fixed_dictionaries({"file": st.just(0)}, optional={"chunks": JSON | st.integers()}))
@example(end={"file": 0, "chunks": CONTROL_MESSAGE + 1})
@example(end={"file": 0, "chunks": True})
def test_pipe_chunks_untrusted__raises_transfer_error_or_returns_a_count(end: dict[str, Any]) -> None:
    with suppress(TransferError):
        assert 0 <= pipe_chunks_untrusted(end) <= CONTROL_MESSAGE


@pytest.mark.parametrize(("offered_s", "kept_s"), [(-5, 0), (0, 0), (60, 60), (1 << 70, MAX_RETRY_S)])
def test_offers_untrusted__the_time_for_leftovers_is_limited(offered_s: int, kept_s: int) -> None:
    assert offered(retry_for_s=offered_s).retry_for_s == kept_s


@given(name=st.text() | st.lists(st.sampled_from(["a", "..", ".", "", "\0", "é" * 127]), max_size=70).map("/".join))
@example(name="\ud800")
@example(name="🎉" * 64)
@example(name="/".join("a" * (MAX_DEPTH + 1)))
@example(name="/".join(["x" * 255] * 16))
def test_path_untrusted__raises_transfer_error_or_returns_plain_components(name: str) -> None:
    try:
        components = path_untrusted(name)
    except TransferError as error:
        str(error).encode()
        return
    assert "/".join(components) == name
    assert 1 <= len(components) <= MAX_DEPTH
    assert len(name.encode()) <= MAX_PATH_BYTES
    for component in components:
        assert component not in ("", ".", "..")
        assert not {"/", "\0"} & set(component)
        assert len(component.encode()) <= MAX_NAME_BYTES


@pytest.mark.parametrize(
    "name",
    [
        *("a", "...", "..a", "-rf", " ", "a b", "~", "x" * 255, "é" * 127, "🎉" * 63, "a\nb"),
        *("a/b", ".../x", "a/ /b", "/".join("a" * MAX_DEPTH), "/".join(["x" * 254] * 16)),
    ],
)
def test_path_untrusted__unusual_valid_names(name: str) -> None:
    assert path_untrusted(name) == tuple(name.split("/"))
