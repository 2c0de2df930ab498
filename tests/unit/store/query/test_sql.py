import duckdb
import pytest

from orchestrator.errors import StoreError
from orchestrator.store.query.sql import query_errors


def test_what_a_damaged_file_holds_does_not_break_the_line() -> None:
    with (
        pytest.raises(StoreError, match="^the store cannot be read: don't know what type:; `taxmeter") as told,
        query_errors(duckdb.connect(), "SELECT 1"),
    ):
        raise duckdb.IOException("IO Error: don't know what type: \r\n")
    assert len(str(told.value).splitlines()) == 1
