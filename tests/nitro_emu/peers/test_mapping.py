"""The mapping that a card has: what is taken once is not taken again, also after a new start; and its end."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from nitro_emu.errors import VpcError
from nitro_emu.peers import mapping as vpc_network
from nitro_emu.peers.mapping import MAX_SEEN
from tests.nitro_emu.peers.test_tenancy import OTHER_KEY, START_S, Rig, document_of, without


def test_document__that_was_taken_or_refused_is_refused_again_unseen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else anybody who has seen one keeps the card's loop busy with it."""
    rig = Rig()
    taken, old = document_of(3), document_of(2)
    forged, broken = document_of(4, key=OTHER_KEY), b"no document"
    rig.network.set_map_untrusted(taken)
    refused = {taken: "3 is not newer than 3", old: "2 is not newer than 3", forged: "signature", broken: "COSE"}
    for document, reason in refused.items():
        with pytest.raises(VpcError, match=reason):
            rig.network.set_map_untrusted(document)
    with monkeypatch.context() as patched:
        patched.setattr(vpc_network, "open_map_untrusted", None)  # whoever calls it fails
        for document, reason in refused.items():
            with pytest.raises(VpcError, match=reason):
                rig.network.set_map_untrusted(document)
    assert rig.alarms.counts["stale-map"] == 4
    rig.push(4)
    with pytest.raises(VpcError, match="3 is not newer than 4"):
        rig.network.set_map_untrusted(taken)


def test_document__refused_for_a_clock_counts_when_the_clock_is_set() -> None:
    rig = Rig()
    rig.clocks.wall_s -= 3600
    document = document_of(1)
    with pytest.raises(VpcError, match="clock is wrong"):
        rig.network.set_map_untrusted(document)
    rig.clocks.wall_s += 3600
    rig.network.set_map_untrusted(document)


def test_documents__that_are_known_are_few() -> None:
    rig = Rig()
    for number in range(3 * MAX_SEEN):
        with pytest.raises(VpcError):
            rig.network.set_map_untrusted(b"%d" % number)
    assert len(rig.network._seen) == MAX_SEEN


def test_version__counts_after_a_new_start(tmp_path: Path) -> None:
    file = tmp_path / "card-b.map-version"
    rig = Rig(version_file=file)
    rig.push(5)
    rig.push(7)
    assert file.read_text() == "7\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == [file.name]
    again = Rig(version_file=file)
    with pytest.raises(VpcError, match=r"6 is older than 7, which this card had before it was started anew; .*version"):
        again.push(6)
    assert again.alarms.counts == {"stale-map": 1}
    with pytest.raises(VpcError, match="no mapping yet"):
        again.network.mapping()
    again.push(7)  # the newest there is
    with pytest.raises(VpcError, match="7 is not newer than 7"):
        again.push(7, content=without("vpcs", "red", "groups", "efa", "ingress"))
    again.push(8)
    assert file.read_text() == "8\n"


def test_version__that_is_refused_is_not_kept(tmp_path: Path) -> None:
    file = tmp_path / "version"
    rig = Rig(version_file=file)
    for document in (document_of(9, key=OTHER_KEY), document_of(9, issued_at_s=START_S + 3600), b"x"):
        with pytest.raises(VpcError):
            rig.network.set_map_untrusted(document)
    assert not file.exists()
    assert not rig.alarms.counts


@pytest.mark.parametrize(
    "content", [b"", b"\n", b"-1\n", b"0\n", b"7 \n", b"7\n7\n", "\u0667".encode(), b"9" * 19, b"1" * 5000]
)
def test_version_file__that_says_nothing_is_alarmed_and_counts_as_none(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "version"
    file.write_bytes(content)
    rig = Rig(version_file=file)
    assert rig.alarms.counts == {"map-version": 1}
    rig.push(3)
    assert file.read_text() == "3\n"


def test_version_file__that_cannot_be_used_is_alarmed_and_mappings_count(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rig = Rig(version_file=tmp_path)
    assert f"alarm map-version: {tmp_path}: cannot be read: Is a directory; an older mapping" in caplog.text
    rig.push(1)
    assert f"{tmp_path}: version 1 cannot be kept: " in caplog.text
    assert rig.alarms.counts == {"map-version": 2}
    assert rig.network.mapping().version == 1


def test_expiry__is_alarmed_once_for_each_mapping() -> None:
    rig = Rig()
    for version in (1, 2):
        rig.push(version, issued_at_s=rig.clocks.wall_s)
        rig.network.check_expiry()
        assert rig.alarms.counts.get("map-expired", 0) == version - 1
        assert rig.network.status() == {"version": version, "expires_in_s": 60.0, "expired": False}
        rig.clocks.tick(60)
        for _ in range(3):
            rig.network.check_expiry()
        assert rig.alarms.counts["map-expired"] == version
        assert rig.network.status() == {"version": version, "expires_in_s": 0.0, "expired": True}


def test_expiry__is_also_alarmed_when_a_tenant_meets_it() -> None:
    rig = Rig()
    rig.push(1)
    rig.clocks.tick(61)
    for _ in range(3):
        with pytest.raises(VpcError, match="expired"):
            rig.network.mapping()
    assert rig.alarms.counts == {"map-expired": 1}


def test_renewal__of_what_has_not_changed_prolongs_it_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes some 4,000 times a day: neither parsed nor judged again."""
    rig = Rig()
    changes: list[int] = []
    rig.network.on_change(lambda: changes.append(rig.network.version))
    rig.push(1)
    before = rig.network.mapping()
    with monkeypatch.context() as patched:
        patched.setattr("nitro_emu.vpc.document.checked_untrusted", None)  # whoever calls it fails
        rig.clocks.wall_s += 50
        rig.clocks.monotonic_s += 50
        rig.push(2, issued_at_s=START_S + 50)
    rig.clocks.monotonic_s += 59
    assert rig.network.mapping() is before
    assert (rig.network.version, before.version, rig.network.rules_version, changes) == (2, 2, 1, [1])
    rig.push(3, content=without("vpcs", "red", "groups", "efa", "ingress"), issued_at_s=START_S + 50)
    assert rig.network.mapping() is not before
    assert (rig.network.version, rig.network.rules_version, changes) == (3, 3, [1, 3])
    rig.push(4, issued_at_s=START_S + 50)
    assert (rig.network.rules_version, changes) == (4, [1, 3, 4])
