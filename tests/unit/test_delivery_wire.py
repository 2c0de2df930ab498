"""What crosses the wire: who is let in, and that no byte sequence does more than end its own connection."""

import contextlib
import struct
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.delivery import Answer, Outcome, ParcelError, Rows, encode_rows, parcels
from orchestrator.delivery.parcels import MAX_PARCEL_BYTES, RowKey, decode_parcel
from orchestrator.delivery.wire import (
    MAX_GREETING_BYTES,
    DriverHandshake,
    Frame,
    FrameReader,
    HostHandshake,
    Kind,
    RefusedError,
    WireError,
    decode_answer,
    encode_answer,
    encode_frame,
)
from orchestrator.store import TRIALS
from tests.storing import row

TOKEN = b"t" * 32
PARCEL = encode_rows(Rows(trials=[row("a"), row("b", attempt=2)]))


def frame_of(data: bytes, limit_bytes: int = MAX_PARCEL_BYTES) -> Frame:
    [frame] = FrameReader(limit_bytes).feed(data)
    return frame


@given(st.lists(st.tuples(st.sampled_from(Kind), st.integers(0, 2**64 - 1), st.binary(max_size=300))), st.data())
def test_frames_come_out_as_they_went_in_however_they_are_cut(
    frames: list[tuple[Kind, int, bytes]], data: st.DataObject
) -> None:
    stream = b"".join(encode_frame(*frame) for frame in frames)
    reader, seen = FrameReader(), []
    while stream:
        cut = data.draw(st.integers(1, len(stream)))
        seen += list(reader.feed(stream[:cut]))
        stream = stream[cut:]
    assert seen == [Frame(*frame) for frame in frames]


@given(st.binary(max_size=200), st.integers(0, 10**6), st.integers(1, 255))
def test_a_flipped_bit_is_no_frame(payload: bytes, place: int, change: int) -> None:
    damaged = bytearray(encode_frame(Kind.PARCEL, 7, payload))
    damaged[place % len(damaged)] ^= change
    frames = []
    with contextlib.suppress(WireError):
        frames = list(FrameReader().feed(bytes(damaged)))  # none, of one that never ends
    assert frames == []


@given(st.binary(max_size=400))
def test_any_bytes_are_frames_or_an_error(data: bytes) -> None:
    reader = FrameReader()
    try:
        frames = list(reader.feed(data))
    except WireError:
        return
    assert sum(len(encode_frame(one.kind, one.sequence, one.payload)) for one in frames) <= len(data)


def test_no_frame_is_longer_than_allowed() -> None:
    with pytest.raises(WireError, match="a frame of 1025 bytes where at most 1024 are allowed"):
        list(FrameReader().feed(encode_frame(Kind.HELLO, 0, bytes(MAX_GREETING_BYTES + 1))))


def greet(driver_token: bytes, host_token: bytes) -> str:
    driver, host = DriverHandshake(driver_token), HostHandshake(host_token, "laba")
    welcome, name = driver.answer(frame_of(host.hello(frame_of(driver.challenge()))))
    host.check(frame_of(welcome))
    return name


def test_whoever_knows_the_token_is_let_in_and_the_token_is_never_sent() -> None:
    assert greet(TOKEN, TOKEN) == "laba"
    driver, host = DriverHandshake(TOKEN), HostHandshake(TOKEN, "laba")
    challenge = driver.challenge()
    hello = host.hello(frame_of(challenge))
    welcome, _ = driver.answer(frame_of(hello))
    assert TOKEN not in challenge + hello + welcome


def test_another_token_is_refused() -> None:
    with pytest.raises(RefusedError, match="does not know the token"):
        greet(TOKEN, b"u" * 32)


def test_what_was_heard_once_opens_no_second_connection() -> None:
    host = HostHandshake(TOKEN, "laba")
    heard = host.hello(frame_of(DriverHandshake(TOKEN).challenge()))
    with pytest.raises(RefusedError, match="does not know the token"):
        DriverHandshake(TOKEN).answer(frame_of(heard))


def test_a_host_does_not_deliver_to_whoever_listens() -> None:
    driver, host = DriverHandshake(b"u" * 32), HostHandshake(TOKEN, "laba")
    host.hello(frame_of(driver.challenge()))
    with pytest.raises(WireError, match="does not know the token"):
        host.check(Frame(Kind.WELCOME, 0, bytes(32)))
    with pytest.raises(WireError, match="no driver of taxmeter"):
        HostHandshake(TOKEN, "laba").hello(Frame(Kind.CHALLENGE, 0, b"SSH-2.0"))


def test_another_schema_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    driver, host = DriverHandshake(TOKEN), HostHandshake(TOKEN, "laba")
    monkeypatch.setattr("orchestrator.delivery.wire.schema_fingerprint", lambda: b"o" * 32)
    hello = host.hello(frame_of(driver.challenge()))
    monkeypatch.undo()
    with pytest.raises(RefusedError, match="another schema; install the same taxmeter on both"):
        driver.answer(frame_of(hello))


def test_another_version_is_refused_by_both_sides(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = DriverHandshake(TOKEN)
    challenge = frame_of(driver.challenge())
    hello = frame_of(HostHandshake(TOKEN, "laba").hello(challenge))
    monkeypatch.setattr("orchestrator.delivery.wire.PROTOCOL_VERSION", 3)
    with pytest.raises(RefusedError, match="the host speaks version 2 of the protocol, the driver 3"):
        driver.answer(hello)
    with pytest.raises(RefusedError, match="the driver speaks version 2 of the protocol, the host 3"):
        HostHandshake(TOKEN, "laba").hello(challenge)


@pytest.mark.parametrize("outcome", list(Outcome))
def test_an_answer_comes_out_as_it_went_in(outcome: Outcome) -> None:
    answer = Answer(outcome, "weil die Platte voll ist – überall")
    frame = frame_of(encode_answer(5, answer))
    assert (frame.sequence, decode_answer(frame)) == (5, answer)


@given(st.binary(max_size=20))
def test_any_answer_is_one_or_an_error(payload: bytes) -> None:
    try:
        answer = decode_answer(Frame(Kind.ANSWER, 1, payload))
    except WireError:
        return
    assert answer.outcome.value == payload[0]


def test_a_parcel_comes_out_as_it_went_in() -> None:
    parcel = decode_parcel(PARCEL)
    assert parcel.keys() == [RowKey("c", "a", 1), RowKey("c", "b", 2)]
    rows = [{name: value for name, value in one.items() if value is not None} for one in parcel.trials.to_pylist()]
    assert rows == [row("a"), row("b", attempt=2)]
    assert (parcel.systems.num_rows, parcel.environments.num_rows) == (0, 0)


@given(st.binary(max_size=300))
def test_any_bytes_are_no_parcel(data: bytes) -> None:
    with pytest.raises(ParcelError):
        decode_parcel(data)


@given(st.integers(0, 10**6), st.integers(1, 255), st.integers(0, 10**6))
def test_a_damaged_parcel_is_a_parcel_or_an_error_and_never_more(place: int, change: int, cut: int) -> None:
    damaged = bytearray(PARCEL)
    damaged[place % len(damaged)] ^= change
    try:
        parcel = decode_parcel(bytes(damaged)[: len(damaged) - cut % 3 * 8])
    except ParcelError:
        return
    assert len(parcel.trials.to_pylist()) == len(parcel.keys())


def test_a_row_without_a_required_value_never_leaves_its_host() -> None:
    with pytest.raises(ParcelError, match="campaign_id is null"):
        encode_rows(Rows(trials=[row("a", campaign_id=None)]))
    with pytest.raises(ParcelError, match="unknown column nonsense"):
        encode_rows(Rows(trials=[row("a", nonsense=1)]))


def test_a_row_without_a_required_value_is_refused_by_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    lax = pa.schema([field.with_nullable(True) for field in TRIALS])
    batch = pa.RecordBatch.from_pylist([row("a", campaign_id=None)], lax)
    monkeypatch.setattr(parcels, "batch_of", lambda rows, schema: batch)
    parcel = encode_rows(Rows(trials=[row("a")]))
    monkeypatch.undo()
    with pytest.raises(ParcelError, match="campaign_id is null"):
        decode_parcel(parcel)


def altered(data: bytes, old: bytes, new: bytes) -> bytes:
    assert data.count(old) == 1
    assert len(old) == len(new)
    return data.replace(old, new)


def string_offsets() -> bytes:
    """The offsets of the first strings in `PARCEL`, as they stand there."""
    values = decode_parcel(PARCEL).packed.column(0).values
    return bytes(values.buffers()[1].slice(0, 4 * (len(values) + 1)))


@pytest.mark.parametrize("outside", [10**6, 2**31 - 1, -1])
@pytest.mark.parametrize("place", [1, -1])
def test_offsets_that_point_outside_of_a_parcel_are_refused(outside: int, place: int) -> None:
    offsets = memoryview(bytearray(string_offsets())).cast("i")
    offsets[place] = outside
    with pytest.raises(ParcelError, match="rows cannot be read"):
        decode_parcel(altered(PARCEL, string_offsets(), bytes(offsets)))


def test_a_string_that_is_no_text_is_refused_also_if_its_neighbour_would_complete_it() -> None:
    text = encode_rows(Rows(trials=[row("a", reason="MARK1MARK2")]))
    with pytest.raises(ParcelError, match="rows cannot be read.*UTF8"):
        decode_parcel(altered(text, b"MARK1MARK2", b"MARK1MARK\xc3"))


@pytest.mark.parametrize("name", ["started_at", "finished_at"])
def test_a_time_that_python_does_not_have_is_refused(name: str) -> None:
    moment = 0x0123456789ABCDEF // 100_000  # microseconds; its bytes are nowhere else
    parcel = encode_rows(
        Rows(trials=[row("a", **{name: datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=moment)})])
    )
    assert decode_parcel(parcel).keys() == [RowKey("c", "a", 1)]
    later = altered(parcel, struct.pack("<q", moment), struct.pack("<q", moment | 1 << 62))
    with pytest.raises(ParcelError, match=f"{name} is not between the years 1 and 9999"):
        decode_parcel(later)


def test_a_row_of_which_a_whole_group_of_columns_is_null_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    packed = decode_parcel(PARCEL).packed
    first = packed.column(0)
    holed = pa.FixedSizeListArray.from_arrays(first.values, first.type.list_size, mask=pa.array([False, True]))
    batch = pa.RecordBatch.from_arrays([holed, *packed.columns[1:]], schema=packed.schema)
    monkeypatch.setattr(parcels, "pack", lambda trials: batch)
    parcel = encode_rows(Rows(trials=[row("a"), row("b")]))
    with pytest.raises(ParcelError, match="trial_id.* is null"):
        decode_parcel(parcel)
