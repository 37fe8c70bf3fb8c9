"""python -m scripts.dask_oracle [TEST ...]: distributed's own tests of comms, of srd:// in tcp://'s place.

`distributed/comm/tests/test_comms.py` is in distributed's repository, and neither in its wheel nor in its source
archive: the tag of the version that is installed is cloned to build/ (a minute; git). In its text tcp:// becomes
srd://. Tests that are about TCP, TLS or inproc themselves, or the default protocol, do not apply: `NOT_OURS` has each
with its reason. pytest prints the rest.

Exit status: 0: all that apply passed; 1: one failed, or the tests cannot be had.
"""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import entry_points, version
from pathlib import Path
from typing import Final

import pytest

REPOSITORY: Final = "https://github.com/dask/distributed"
TESTS: Final = "distributed/comm/tests/test_comms.py"
BUILD: Final = Path(__file__).parents[1] / "build" / "distributed"

INPROC: Final = "inproc:// itself"
TLS: Final = "TLS, which srd has not: Security's certificates are refused"
TCP: Final = "reaches into tornado's streams, or replaces parts of distributed.comm.tcp"
DEFAULT: Final = "addresses without a protocol, which are tcp://"
PLAIN: Final = "functions of distributed, whatever the protocol"
NOT_OURS: Final = (
    (r"test_inproc_.*", INPROC),
    (r"test_tls_.*", TLS),
    (r"test_(parse|unparse)_host_port|test_register_backend_entrypoint", PLAIN),
    (r"test_get_address_host|test_resolve_address|test_get_local_address_for", DEFAULT),
    (r"test_default_client_server_.*", DEFAULT),
    (r"test_tcp_specific|test_get_stream_address_raises_if_closed|test_comm_failure_threading", TCP),
    (r"test_tcp_listener_does_not_call_handler_on_handshake_error|test_retry_connect|test_handshake_slow_comm", TCP),
    (r"test_tcp_deserialize_eoferror|test_comm_closed_on_write_error|test_stop_listener_during_handle_stream", TCP),
)
"""Patterns of tests that do not apply, and why."""


def sources() -> str:
    """Return the text of distributed's tests, cloned once. Raises CalledProcessError."""
    tag = version("distributed")
    checkout = BUILD / tag
    if not (checkout / TESTS).exists():
        BUILD.mkdir(parents=True, exist_ok=True)
        arguments = ["git", "clone", "--quiet", "--depth", "1", "--branch", tag, REPOSITORY, str(checkout)]
        subprocess.run(arguments, check=True)
    return (checkout / TESTS).read_text()


class Selection:
    """A plugin of pytest's: says of each test that does not apply why."""

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Mark what does not apply."""
        for item in items:
            name = item.name.partition("[")[0]
            for pattern, reason in NOT_OURS:
                if re.fullmatch(pattern, name):
                    item.add_marker(pytest.mark.skip(reason=reason))


def main() -> int:
    if not entry_points(group="distributed.comm.backends", name="srd"):
        print("srd:// is not installed: make test-dask", file=sys.stderr)
        return 1
    try:
        text = sources()
    except (subprocess.CalledProcessError, OSError) as error:
        print(f"distributed's tests cannot be had: {error}", file=sys.stderr)
        return 1
    tests = BUILD / "test_comms_srd.py"
    without_certificates = re.sub(r"\bget_(cert|client_ssl_context|server_ssl_context)\(", "str(", text)
    tests.write_text(without_certificates.replace("tcp://", "srd://"))
    named = ["-k", " or ".join(sys.argv[1:])] if sys.argv[1:] else []
    options = ["-q", "-rs", "-p", "no:cacheprovider", "-p", "no:asyncio", "-c", "/dev/null", "--rootdir", str(BUILD)]
    return int(pytest.main([*options, *named, str(tests)], plugins=[Selection()]) != 0)


if __name__ == "__main__":
    sys.exit(main())
