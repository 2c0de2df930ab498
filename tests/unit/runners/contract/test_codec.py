"""Lines of `records.jsonl`: what comes back is what was written, or it is refused with a reason."""

import json
import math
import zlib

import pytest

from runners.contract import Begin, ContractError, Series, Status, TrialRecord, decode_line, encode_line
from tests.recording import line_of

RECORD = TrialRecord(
    trial_id="t", attempt=1, status=Status.OK, reason=None, started_at_ns=1, finished_at_ns=2,
    series=(Series("sync", 1, (1, 2, 3), (1, 2, 3)),), facts={"flag": True, "count": 3, "share": 0.5, "none": None},
)  # fmt: skip


def test_a_line_is_json_and_comes_back_as_it_was() -> None:
    line = encode_line(RECORD)
    assert json.loads(line)["series"][0]["durations_ns"] == [1, 2, 3]
    assert decode_line(line) == RECORD == decode_line(line.rstrip())


@pytest.mark.parametrize("place", [0, 20, -8, -3])
def test_a_line_in_which_a_bit_has_changed_is_refused(place: int) -> None:
    line = bytearray(encode_line(RECORD).rstrip())
    line[place] ^= 1
    with pytest.raises(ContractError, match="does not end in its checksum"):
        decode_line(bytes(line))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"type":"word"}', "type must be one of"),
        ('{"type":[]}', "type must be one of"),
        ('{"type":"end","task_id":"t","records":1e999}', "not a line of JSON: 1e999 is too large"),
        ('{"type":"end","task_id":1,"records":1}', "end.task_id: expected str, got int"),
        ('{"type":"end","task_id":"t","records":NaN}', "not a line of JSON: NaN"),
        ('{"type":"end","task_id":"t"}', "key records is missing"),
        ('{"type":"begin","trial_id":"t","attempt":1,"started_at_ns":1,"more":1}', "unknown key more"),
        ("[" * 100_000 + "}", "not a line of JSON"),
    ],
)
def test_a_line_of_another_shape_is_refused(text: str, problem: str) -> None:
    with pytest.raises(ContractError, match=problem):
        decode_line(line_of(text))


@pytest.mark.parametrize(
    ("written", "wrong", "problem"),
    [
        (b'"build_s":null', b'"build_s":1' + b"0" * 400, r"phases.build_s: too large for a float"),
        (b"[1,2,3]", b"[1,true,3]", r"durations_ns\[1\]: expected int, got bool"),
    ],
)
def test_a_number_of_another_kind_is_refused(written: bytes, wrong: bytes, problem: str) -> None:
    body = encode_line(RECORD).partition(b',"crc32"')[0].replace(written, wrong) + b"}"
    with pytest.raises(ContractError, match=problem):
        decode_line(line_of(body.decode()))


def test_a_line_without_a_number_is_not_written() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        encode_line(TrialRecord("t", 1, Status.OK, None, 1, 2, facts={"x": math.nan}))


def test_the_checksum_is_that_of_what_stands_before_it() -> None:
    body, _, check = encode_line(Begin("t", 1, 5)).partition(b',"crc32":"')
    assert int(check[:8], 16) == zlib.crc32(body)
