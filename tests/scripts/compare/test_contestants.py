from __future__ import annotations

import re
import sys
from pathlib import Path

from scripts.compare.contestants import BY_KEY, CONTESTANTS, Ends

ENDS = Ends(sender_address="10.101.1.1", receiver_address="10.0.2.1", source=Path("/s/f.bin"), output=Path("/o"))


def test_contestants__keys_and_colours_are_their_own() -> None:
    assert [contestant.key for contestant in CONTESTANTS] == ["srd", "tcp-cubic", "tcp-bbr", "mptcp"]
    assert len({contestant.colour for contestant in CONTESTANTS}) == len(CONTESTANTS)
    assert all(re.fullmatch("#[0-9A-F]{6}", contestant.colour) for contestant in CONTESTANTS)


def test_srd__commands() -> None:
    receive, send = BY_KEY["srd"].receive(ENDS), BY_KEY["srd"].send(ENDS, 7777)
    assert Path(receive[0]).name == "srd"
    assert receive[1:4] == ["recv", "--listen", "10.0.2.1:0"]
    assert {"--once", "--json", "--overwrite"} <= set(receive)
    assert send[1:4] == ["send", "/s/f.bin", "10.0.2.1:7777"]
    assert send[-7:] == ["--paths", "32", "--hash", "sha256", "--json", "--retry-for", "0"]


def test_tcp__commands_name_the_algorithm() -> None:
    for key, algorithm in (("tcp-cubic", "cubic"), ("tcp-bbr", "bbr"), ("mptcp", "cubic")):
        for command in (BY_KEY[key].receive(ENDS), BY_KEY[key].send(ENDS, 7777)):
            assert command[0] == sys.executable
            assert command[command.index("--algorithm") + 1] == algorithm
            assert ("--mptcp" in command) == (key == "mptcp")
    assert BY_KEY["mptcp"].send(ENDS, 7777)[-2:] == ["--bind", "10.101.1.1"]
    assert "--bind" not in BY_KEY["tcp-cubic"].send(ENDS, 7777)
