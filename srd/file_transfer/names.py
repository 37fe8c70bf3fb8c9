"""The name of a file in an offer: a path below the receiver's directory, which no name may leave."""

from __future__ import annotations

from srd.file_transfer.errors import TransferError

MAX_NAME_BYTES = 255
"""NAME_MAX of Linux file systems, for each component."""
MAX_PATH_BYTES = 4095
"""PATH_MAX of Linux, without the NUL."""
MAX_DEPTH = 64
"""Components of a path. The receiver opens one directory for each; trees that people send are less deep."""


def path_untrusted(name: str) -> tuple[str, ...]:
    """Return the components of a relative POSIX path: none of them empty, ".", "..", or longer than NAME_MAX.

    Raises TransferError, and nothing else.
    """
    try:
        encoded = name.encode()
    except UnicodeEncodeError as error:
        raise TransferError("a name that is no text") from error
    components = tuple(name.split("/"))
    if len(encoded) > MAX_PATH_BYTES or len(components) > MAX_DEPTH or not all(map(_is_component, components)):
        raise TransferError(f"name {name[:80]!r} is no path below the receiver's directory")
    return components


def _is_component(component: str) -> bool:
    is_plain = component not in ("", ".", "..") and "\0" not in component
    return is_plain and len(component.encode()) <= MAX_NAME_BYTES
