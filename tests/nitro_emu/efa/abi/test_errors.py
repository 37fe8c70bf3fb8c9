"""The errors that carry numbers, also through pickle."""

from __future__ import annotations

import errno
import pickle

from nitro_emu import errors


def test_admin_error() -> None:
    error = errors.AdminError(5, "pd: 9 does not exist", command_id=3)
    assert (error.status, error.command_id, str(error)) == (5, 3, "pd: 9 does not exist")
    assert str(errors.AdminError(7)) == "admin status 7"
    assert errors.AdminError(7).command_id is None


def test_verbs_error() -> None:
    error = errors.VerbsError(errno.EINVAL, "qp_state: not RTS")
    assert (error.errno, str(error)) == (errno.EINVAL, "qp_state: not RTS")
    assert pickle.loads(pickle.dumps(error)).errno == errno.EINVAL  # noqa: S301 - our own bytes


def test_abi_error() -> None:
    assert errors.AbiError("op: 9 is unknown", field="op").field == "op"
    assert not errors.AbiError("something").field
