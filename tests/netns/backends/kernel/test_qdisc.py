"""netns.backends.kernel.qdisc: over netlink, on the loopback of nameless namespaces; with tbf, which every kernel here
has."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netns.backends.kernel.qdisc import _messages_untrusted, delete_root, replace_root, root_options
from netns.backends.relay.tap import in_nameless_namespace
from netns.errors import BackendError

# struct tc_tbf_qopt: two tc_ratespec (cell_log, linklayer, overhead, cell_align, mpu, rate), limit, buffer, mtu
RATESPEC = struct.Struct("=BBHhHI")
TCA_TBF_PARMS, TCA_TBF_BURST = 1, 6


def tbf(*, rate: int) -> bytes:
    parameters = RATESPEC.pack(0, 1, 0, 0, 0, rate) + bytes(RATESPEC.size) + struct.pack("=III", 10_000, 0, 0)
    header = struct.pack("=HH", 4 + len(parameters), TCA_TBF_PARMS)
    return header + parameters + struct.pack("=HHI", 8, TCA_TBF_BURST, 10_000)


@pytest.mark.root
def test_replace_read_delete() -> None:
    def work() -> tuple[bytes, bytes]:
        replace_root("lo", kind="tbf", options=tbf(rate=1_000_000))
        first = root_options("lo", kind="tbf")
        replace_root("lo", kind="tbf", options=tbf(rate=2_000_000))
        second = root_options("lo", kind="tbf")
        delete_root("lo")
        with pytest.raises(BackendError, match="lo: its root qdisc is no tbf"):
            root_options("lo", kind="tbf")
        return first, second

    rates = [struct.unpack_from("=I", options, 4 + 8)[0] for options in in_nameless_namespace(work)]
    assert rates == [1_000_000, 2_000_000]


@pytest.mark.root
def test_replace_root__kernel_message_bad_flow() -> None:
    def work() -> None:
        with pytest.raises(BackendError, match=r"^Specified qdisc kind is unknown$"):
            replace_root("lo", kind="nope", options=b"")
        with pytest.raises(
            BackendError, match=r"^(Cannot delete qdisc with handle of zero|No such file or directory)$"
        ):
            delete_root("lo")

    in_nameless_namespace(work)


@pytest.mark.root
def test_in_nameless_namespace__raises_what_the_work_raises() -> None:
    with pytest.raises(OSError, match="no interface with this name"):
        in_nameless_namespace(lambda: delete_root("nope"))


@given(st.binary(max_size=100))
def test_messages_untrusted__any_bytes_bad_flow(answer: bytes) -> None:
    try:
        messages = list(_messages_untrusted(answer))
    except BackendError:
        return
    assert sum(len(content) + 16 for _, content in messages) <= len(answer)


def test_messages_untrusted__error_without_message() -> None:
    refusal = struct.pack("=IHHII", 36, 2, 0, 1, 0) + struct.pack("=i", -2) + bytes(16)
    with pytest.raises(BackendError, match=r"^No such file or directory$"):
        list(_messages_untrusted(refusal))
    with pytest.raises(BackendError, match="ends inside an error"):
        list(_messages_untrusted(struct.pack("=IHHII", 18, 2, 0, 1, 0) + bytes(2)))
