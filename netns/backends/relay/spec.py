"""The relay's specification: its links, and the path of its control socket. The lab writes it as JSON (StartRelay)."""

from __future__ import annotations

import json
from pathlib import Path

from netns.errors import BackendError, ShapeError
from netns.lab.operations import RelayLink


def load_spec(path: Path) -> tuple[Path, tuple[RelayLink, ...]]:
    """Return the path of the control socket, and the links; BackendError with the file if it is invalid."""
    try:
        document = json.loads(path.read_text())
        return Path(document["control"]), tuple(map(RelayLink.from_dict, document["links"]))
    except OSError as error:
        raise BackendError(f"{path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, ShapeError) as error:
        raise BackendError(f"{path}: no specification of a relay ({error})") from None
