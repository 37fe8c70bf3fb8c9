"""Results as Parquet, by pyarrow (the extra `sweep`). The same version of it writes the same rows as the same bytes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from netns.base.files import write_whole
from srd.sim.experiments.errors import ExperimentError

FLOWS: Final = (
    ("flow", "int64"),
    ("source", "string"),
    ("destination", "string"),
    ("size_bytes", "int64"),
    ("start_us", "float64"),
    ("fct_us", "float64"),
    ("ideal_us", "float64"),
    ("slowdown", "float64"),
)
"""Columns of flows, and their types in Arrow."""
LINKS: Final = (("link", "string"), ("at_us", "float64"), ("sent_bytes", "int64"), ("wait_us", "float64"))
"""Columns of the series of links."""


def require() -> None:
    """Raise ExperimentError if pyarrow is missing."""
    try:
        import pyarrow as pa  # noqa: F401, PLC0415 - an extra
    except ModuleNotFoundError:
        raise ExperimentError("Parquet needs pyarrow; install it, in the checkout: pip install '.[sweep]'") from None


def write(
    path: Path,
    rows: Iterable[Mapping[str, Any]],
    *,
    columns: Sequence[tuple[str, str]],
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Write rows as a file that is there whole or not at all. Raises ExperimentError."""
    require()
    import pyarrow as pa  # noqa: PLC0415 - an extra, and half a second
    import pyarrow.parquet as pq  # noqa: PLC0415

    schema = pa.schema([(name, pa.type_for_alias(kind)) for name, kind in columns], metadata=metadata)
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(list(rows), schema=schema), sink)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, sink.getvalue().to_pybytes())
    except OSError as error:
        raise ExperimentError(f"{path}: {error.strerror}; choose another place") from error


def metadata(path: Path, key: str) -> str:
    """Return what `write` was given as metadata. Raises ExperimentError."""
    import pyarrow.parquet as pq  # noqa: PLC0415 - an extra, and half a second

    try:
        found: bytes = pq.read_schema(path).metadata[key.encode()]
    except (OSError, KeyError, TypeError, ValueError):
        raise ExperimentError(f"{path}: no file of a sweep; remove it") from None
    return found.decode()


def column(path: Path, name: str) -> list[Any]:
    """Return a column of a file."""
    import pyarrow.parquet as pq  # noqa: PLC0415 - an extra, and half a second

    found: list[Any] = pq.read_table(path, columns=[name]).column(name).to_pylist()
    return found
