"""srd.file_transfer.names: what a name may be, so that none leaves the receiver's directory."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from srd.file_transfer.errors import TransferError
from srd.file_transfer.names import MAX_DEPTH, MAX_NAME_BYTES, MAX_PATH_BYTES, path_untrusted


@given(name=st.text() | st.lists(st.sampled_from(["a", "..", ".", "", "\0", "é" * 127]), max_size=70).map("/".join))
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
        *("", ".", "..", "/", "../a", "/etc/passwd", "a\0b", "\ud800", "x" * 256, "é" * 128, "🎉" * 64),
        *("a/", "a//b", "a/../b", "a/.", "./a", "a/..", "/".join("a" * (MAX_DEPTH + 1)), "/".join(["x" * 255] * 17)),
    ],
)
def test_path_untrusted__bad_flow(name: str) -> None:
    with pytest.raises(TransferError, match="name") as caught:
        path_untrusted(name)
    str(caught.value).encode()


@pytest.mark.parametrize(
    "name",
    [
        *("a", "...", "..a", "-rf", " ", "a b", "~", "x" * 255, "é" * 127, "🎉" * 63, "a\nb"),
        *("a/b", ".../x", "a/ /b", "/".join("a" * MAX_DEPTH), "/".join(["x" * 254] * 16)),
    ],
)
def test_path_untrusted__unusual_valid_names(name: str) -> None:
    assert path_untrusted(name) == tuple(name.split("/"))
