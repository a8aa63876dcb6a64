"""Records of the transaction log: they have the bytes of Kafka's schemas, and invalid bytes are rejected."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraft.broker.txn.records import TransactionLogEntry, TransactionValue, decode_entry, encode_entry
from kraft.broker.txn.states import TransactionState
from kraft.seam import WireError

VALUE = TransactionValue(5, 2, 60_000, TransactionState.ONGOING, frozenset({("b", 1), ("a", 3), ("a", 0)}), 1_000, 900)

texts = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=20)
values = st.builds(
    TransactionValue,
    producer_id=st.integers(0, 2**63 - 1),
    producer_epoch=st.integers(0, 32_767),
    timeout_ms=st.integers(1, 2**31 - 1),
    state=st.sampled_from([state for state in TransactionState if state is not TransactionState.EMPTY]),
    partitions=st.frozensets(st.tuples(texts, st.integers(0, 1_000)), max_size=5),
    update_ms=st.integers(-1, 2**63 - 1),
    start_ms=st.integers(-1, 2**63 - 1),
    previous_producer_id=st.integers(-1, 2**63 - 1),
    next_producer_id=st.integers(-1, 2**63 - 1),
    client_version=st.integers(0, 2),
)


def test_a_non_flexible_transaction_value_has_kafkas_bytes_of_version_0() -> None:
    record = encode_entry(TransactionLogEntry("tx", VALUE), is_flexible=False)
    assert record.key == bytes.fromhex("0000 0002 7478")
    assert record.value == bytes.fromhex(
        "0000 0000000000000005 0002 0000ea60 01"
        "00000002 0001 61 00000002 00000000 00000003 0001 62 00000001 00000001"
        "00000000000003e8 0000000000000384"
    )


def test_a_flexible_transaction_value_has_kafkas_bytes_of_version_1() -> None:
    value = VALUE._replace(previous_producer_id=4, client_version=2)
    record = encode_entry(TransactionLogEntry("tx", value), is_flexible=True)
    assert record.value == bytes.fromhex(
        "0001 0000000000000005 0002 0000ea60 01"
        "03 02 61 03 00000000 00000003 00 02 62 02 00000001 00"
        "00000000000003e8 0000000000000384"
        "02 00 08 0000000000000004 02 02 0002"
    )


@pytest.mark.parametrize("is_flexible", [False, True])
def test_the_record_of_an_empty_transaction_has_a_null_array_of_partitions(is_flexible: bool) -> None:
    value = TransactionValue(5, 0, 60_000, TransactionState.EMPTY)
    record = encode_entry(TransactionLogEntry("tx", value), is_flexible=is_flexible)
    assert record.value is not None
    assert record.value[17:18] == (b"\0" if is_flexible else b"\xff")
    assert decode_entry(record.key, record.value) == TransactionLogEntry("tx", value)


@given(texts, values)
def test_a_flexible_transaction_record_is_decoded_with_all_its_fields(name: str, value: TransactionValue) -> None:
    record = encode_entry(TransactionLogEntry(name, value), is_flexible=True)
    assert decode_entry(record.key, record.value) == TransactionLogEntry(name, value)


def test_the_record_that_removes_a_transactional_id_has_no_value() -> None:
    record = encode_entry(TransactionLogEntry("tx", None), is_flexible=True)
    assert record.value is None
    assert decode_entry(record.key, None) == TransactionLogEntry("tx", None)


@pytest.mark.parametrize("is_flexible", [False, True])
def test_a_transaction_record_with_a_number_out_of_its_fields_range_is_a_value_error(is_flexible: bool) -> None:
    with pytest.raises(ValueError, match="32768"):
        encode_entry(TransactionLogEntry("tx", VALUE._replace(producer_epoch=32_768)), is_flexible=is_flexible)


def test_transaction_records_of_unknown_types_and_versions_are_skipped() -> None:
    record = encode_entry(TransactionLogEntry("tx", VALUE), is_flexible=True)
    assert record.value is not None
    assert decode_entry(b"\0\7" + record.key[2:], record.value) is None
    assert decode_entry(record.key, b"\0\2" + record.value[2:]) is None


@given(st.binary(max_size=60), st.none() | st.binary(max_size=80))
def test_random_bytes_decode_to_a_transaction_record_to_none_or_to_a_wire_error(
    key: bytes, value: bytes | None
) -> None:
    try:
        decode_entry(key, value)
    except WireError:
        return


def test_a_transaction_record_that_is_too_short_or_too_long_is_a_wire_error() -> None:
    record = encode_entry(TransactionLogEntry("tx", VALUE), is_flexible=True)
    assert record.value is not None
    for value in (record.value[:-1], record.value + b"\0", record.value[:12]):
        with pytest.raises(WireError):
            decode_entry(record.key, value)
    with pytest.raises(WireError):
        decode_entry(None, record.value)
