"""srd.qlog.errors: part of the package's one tree."""

from __future__ import annotations

from srd.errors import SrdError
from srd.qlog.errors import TraceError


def test_trace_error__is_an_srd_error() -> None:
    assert issubclass(TraceError, SrdError)
