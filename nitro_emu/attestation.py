"""What a card states about itself. A card without a security chip cannot sign it, and says so.

The measurements are those that a chip would sign: the software that serves the card, and its settings.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

MEASURED_PACKAGES: Final = ("devmem", "nitro_emu", "srd")

MAX_NONCE_BYTES: Final = 1024
"""The most that AWS's attestation documents have."""


def image_sha384(root: Path | None = None) -> str:
    """Return SHA-384 over the source files of the card, each with its name and length, in sorted order.

    `root`: the directory of the packages; default: where this package is. In a compiled build the files are those that
    it was compiled from.
    """
    root = Path(__file__).resolve().parent.parent if root is None else root
    digest = hashlib.sha384()
    for path in sorted(_sources(root), key=lambda path: path.relative_to(root).as_posix()):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(root).as_posix()}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()


def _sources(root: Path) -> Iterable[Path]:
    for package in MEASURED_PACKAGES:
        yield from (root / package).rglob("*.py")


def unsigned_statement(*, image: str, configuration: str, nonce: str | None) -> dict[str, Any]:
    """Return the statement of a card without a security chip; measurements are SHA-384 in hexadecimal."""
    return {
        "signed": False,
        "reason": "this card has no security chip",
        "measurements": {"image": image, "configuration": configuration},
        "nonce": nonce,
    }
