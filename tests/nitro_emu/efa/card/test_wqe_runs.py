"""Runs of equal send requests, against looking at them one by one."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from nitro_emu.efa.abi import io
from nitro_emu.efa.card.wqe_runs import runs

BASE = {"req_id": 0, "phase": 0, "dest_qp_num": 1, "ah": 1, "qkey": 1, "immediate": None, "length": 64, "lkey": 1}
VALUES: dict[str, tuple[Any, ...]] = {
    "phase": (0, 1),
    "dest_qp_num": (1, 2),
    "ah": (1, 2),
    "qkey": (1, 2),
    "immediate": (None, 1, 2),
    "length": (64, 65, 0),
    "lkey": (1, 2),
    "kind": ("send", "send", "inline", "two", "none", "write", "read"),
    "mutated": (None, None, None, 2, 3, 15, 20, 25, 26, 31),
}


def changes() -> st.SearchStrategy[dict[str, Any]]:
    """A few fields that differ from the usual ones."""
    fields = st.sampled_from(sorted(VALUES))
    return st.lists(fields.flatmap(lambda name: st.sampled_from([(name, each) for each in VALUES[name]]))).map(dict)


def wqe(number: int, change: dict[str, Any], *, wqe_bytes: int) -> bytes:
    """An entry with a request id and an address of its own."""
    values = {**BASE, **change}
    kind, mutated = values.pop("kind", "send"), values.pop("mutated", None)
    length, lkey = values.pop("length"), values.pop("lkey")
    values["req_id"] = number
    sge = (0x7000_0000 + number * 100, length, lkey)
    if kind in {"write", "read"}:
        remote = io.RemoteMemory(9, 0x1000, length)
        op = io.SendOp.RDMA_WRITE if kind == "write" else io.SendOp.RDMA_READ
        if kind == "read":
            values["immediate"] = None
        raw = io.pack_wqe(op, remote=remote, sges=(sge,), wqe_bytes=wqe_bytes, **values)
    elif kind == "inline":
        raw = io.pack_wqe(data=bytes([number & 0xFF]) * (length % 32), wqe_bytes=wqe_bytes, **values)
    else:
        sges = {"send": (sge,), "two": (sge, sge), "none": ()}[kind]
        raw = io.pack_wqe(sges=sges, wqe_bytes=wqe_bytes, **values)
    if mutated is None:
        return raw
    changed = bytearray(raw)
    changed[mutated] ^= 0x10
    return bytes(changed)


def decoded(raw: bytes) -> io.SendDescriptor | str:
    """What one entry means by itself: the request without its id, address and data, or why it is refused."""
    try:
        found = io.unpack_wqe_untrusted(raw)
    except Exception as error:  # noqa: BLE001 - the refusal is the result
        return str(error)
    sges = tuple(sge._replace(address=0) for sge in found.sges)
    return found._replace(req_id=0, sges=sges, data=bytes(len(found.data)))


@given(
    st.lists(st.tuples(changes(), st.integers(1, 6)), min_size=1, max_size=12),
    st.sampled_from((64, 128)),
)
def test_a_run_is_what_its_entries_are_one_by_one(parts: list[tuple[dict[str, Any], int]], wqe_bytes: int) -> None:
    entries: list[bytes] = []
    for change, count in parts:
        entries += [wqe(len(entries) + index, change, wqe_bytes=wqe_bytes) for index in range(count)]
    raw = b"".join(entries)
    at = 0
    for run in runs(raw, wqe_bytes=wqe_bytes):
        assert run.first == at, "no entry is left out, and none is in two"
        at += run.length
        first = decoded(entries[run.first])
        for index in range(run.length):
            entry = entries[run.first + index]
            assert decoded(entry) == first
            assert int(run.req_ids[index]) == io.req_id_of(entry)
            if run.length == 1 or isinstance(first, str):
                continue
            found = io.unpack_wqe_untrusted(entry)
            assert found.op is io.SendOp.SEND, "only sends are posted as a batch"
            if run.is_inline:
                start = int(run.addresses[index])
                assert raw[start : start + len(found.data)] == found.data
            else:
                assert len(found.sges) == 1
                assert int(run.addresses[index]) == found.sges[0].address
    assert at == len(entries)


@given(st.integers(2, 40), st.sampled_from((64, 128)), st.booleans())
def test_equal_sends_are_one_run(count: int, wqe_bytes: int, inline: bool) -> None:  # noqa: FBT001 - hypothesis
    change = {"kind": "inline" if inline else "send"}
    raw = b"".join(wqe(number, change, wqe_bytes=wqe_bytes) for number in range(count))
    assert [run.length for run in runs(raw, wqe_bytes=wqe_bytes)] == [count]
