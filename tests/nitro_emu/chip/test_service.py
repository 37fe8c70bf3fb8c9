"""nitro_emu.chip.service: who may ask what, whatever is sent; without sockets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nitro_emu.chip.chip import BootState
from nitro_emu.chip.messages import MAX_RESPONSE_BYTES, ChipMessage, decode_untrusted, encode
from nitro_emu.chip.service import ALWAYS, OF_THE_CARD, ChipUser, Packet, Service
from nitro_emu.trust.cbor import dumps
from tests.nitro_emu.chip.chips import Rig


class FakeClient(ChipUser):
    def __init__(self) -> None:
        self.is_gone = False

    def has_ended(self) -> bool:
        return self.is_gone


def boot_fields(rig: Rig) -> dict[str, str]:
    files = rig.files
    return {
        "image_root": str(files.image_root),
        "manifest": str(files.manifest),
        "configuration": str(files.configuration),
    }


def message_of(packets: Sequence[Packet]) -> ChipMessage:
    return decode_untrusted(bytes(packets[0]), name="answer", max_bytes=MAX_RESPONSE_BYTES)


def ask(service: Service, client: ChipUser, name: str, fields: dict[str, Any] | None = None) -> ChipMessage:
    return message_of(service.answer_untrusted(encode(7, name, fields), client=client))


REQUESTS: dict[str, dict[str, Any] | None] = {"Attestation": {}, "Status": None}


def test_a_card_that_runs_is_answered(rig: Rig) -> None:
    service, client = Service(rig.chip()), FakeClient()
    packets = service.answer_untrusted(encode(5, "Boot", boot_fields(rig)), client=client)
    answer = message_of(packets)
    assert (answer.number, answer.fields["reason"], answer.fields["version"]) == (5, None, 1)
    assert isinstance(packets[1], bytearray)
    assert len(packets[1]) == 32
    for name, fields in REQUESTS.items():
        found = ask(service, client, name, fields)
        assert (found.number, found.name) == (7, name), found
    assert ask(service, client, "CheckUpdate", boot_fields(rig)).fields == {"version": 1}
    assert {*REQUESTS, "Boot", "CheckUpdate"} == ALWAYS | OF_THE_CARD


def assert_only_status(service: Service, client: ChipUser, rig: Rig) -> None:
    for name, fields in {**REQUESTS, "CheckUpdate": boot_fields(rig)}.items():
        answer = ask(service, client, name, fields)
        if name == "Status":
            assert answer.name == "Status"
        else:
            assert (answer.name, answer.text) == ("Error", "InvalidOperation"), name


def test_before_a_boot_only_the_status(rig: Rig) -> None:
    assert_only_status(Service(rig.chip()), FakeClient(), rig)


def test_a_sealed_card_only_gets_the_status(rig: Rig) -> None:
    service, client = Service(rig.chip()), FakeClient()
    rig.configuration.write_text("")
    packets = service.answer_untrusted(encode(5, "Boot", boot_fields(rig)), client=client)
    assert len(packets) == 1
    assert "configuration" in message_of(packets).fields["reason"]
    assert_only_status(service, client, rig)


def test_other_connections_only_get_the_status_and_no_card(rig: Rig) -> None:
    service, card, other = Service(rig.chip()), FakeClient(), FakeClient()
    ask(service, card, "Boot", boot_fields(rig))
    assert_only_status(service, other, rig)
    answer = ask(service, other, "Boot", boot_fields(rig))
    assert answer.name == "Refused"
    assert answer.text.startswith("a card runs on this chip already")
    assert ask(service, card, "Attestation").name == "Attestation", "the refused one has changed nothing"
    service.end(other)
    assert ask(service, card, "Attestation").name == "Attestation"


def test_a_card_that_has_ended_makes_room(rig: Rig) -> None:
    chip = rig.chip()
    service, card, other = Service(chip), FakeClient(), FakeClient()
    ask(service, card, "Boot", boot_fields(rig))
    service.end(card)
    assert chip.state is BootState.RESET
    assert ask(service, other, "Boot", boot_fields(rig)).fields["reason"] is None
    other.is_gone = True  # which the server has not been told yet
    assert ask(service, card, "Boot", boot_fields(rig)).fields["reason"] is None
    service.end(other)
    assert ask(service, card, "Attestation").name == "Attestation"


def test_a_sealed_boot_of_another_does_not_keep_the_chip(rig: Rig) -> None:
    service, one, two = Service(rig.chip()), FakeClient(), FakeClient()
    assert ask(service, one, "Boot", {**boot_fields(rig), "manifest": "/nowhere"}).fields["reason"] is not None
    assert ask(service, two, "Boot", boot_fields(rig)).fields["reason"] is None


def test_a_new_boot_that_fails_takes_the_card_its_rights(rig: Rig) -> None:
    service, card = Service(rig.chip()), FakeClient()
    ask(service, card, "Boot", boot_fields(rig))
    ask(service, card, "Boot", {**boot_fields(rig), "manifest": "/nowhere"})
    assert_only_status(service, card, rig)


def test_a_boot_of_a_malformed_request_changes_nothing(rig: Rig) -> None:
    service, card = Service(rig.chip()), FakeClient()
    ask(service, card, "Boot", boot_fields(rig))
    for wrong in (
        {},
        {"manifest": "relative"},
        {"manifest": 5},
        {"manifest": "/nul\0"},
        {"more": "/x"},
        {"image_root": "/" + "x" * 5000},
    ):
        fields = {**boot_fields(rig), **wrong} if wrong else {}
        answer = ask(service, card, "Boot", fields)
        assert answer.text in {"InvalidArgument", "InputTooLarge"}, wrong
    assert ask(service, card, "Attestation").name == "Attestation"


def test_a_text_in_place_of_fields_is_malformed(rig: Rig) -> None:
    packet = dumps([3, {"Status": "please"}])
    answer = message_of(Service(rig.chip()).answer_untrusted(packet, client=FakeClient()))
    assert (answer.number, answer.text) == (3, "InvalidArgument")
    assert ask(Service(rig.chip()), FakeClient(), "Status", {"more": 1}).text == "InvalidArgument"


def test_an_internal_error_is_an_answer(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    chip = rig.chip()
    monkeypatch.setattr(chip, "status", lambda: 1 // 0)
    assert ask(Service(chip), FakeClient(), "Status").text == "InternalError"


VALUES = st.one_of(st.none(), st.integers(-1, 1 << 65), st.binary(max_size=5), st.text(max_size=3), st.lists(st.none()))
packets = st.one_of(
    st.binary(max_size=100),
    st.builds(
        lambda number, name, fields: dumps([number, {name: fields}]),
        st.integers(-2, 2),
        st.sampled_from([*REQUESTS, "CheckUpdate", "ExtendPCR"]),
        st.dictionaries(
            st.sampled_from(["more", "public_key", "nonce", "user_data", "manifest"]),
            VALUES,
        ),
    ),
)


@given(sent=st.lists(packets, max_size=8))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
def test_whatever_is_sent_is_answered_and_the_card_goes_on(rig: Rig, sent: list[bytes]) -> None:
    service, card = Service(rig.chip()), FakeClient()
    ask(service, card, "Boot", boot_fields(rig))
    for packet in sent:
        answers = service.answer_untrusted(packet, client=card)
        assert len(answers) == 1
        assert len(answers[0]) <= MAX_RESPONSE_BYTES
        assert message_of(answers).text != "InternalError"
    assert ask(service, card, "Attestation").name == "Attestation"
