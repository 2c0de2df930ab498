"""Bytes and text of others: what is refused, and in what words."""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.boundary import (
    MAX_JSON_DEPTH,
    foreign_directory,
    load_json,
    open_foreign_file,
    read_foreign_file,
    terminal_text,
    validated,
)
from orchestrator.errors import ForeignDataError


def test_a_regular_file_is_read_whole_and_a_link_followed_where_a_person_named_it(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 10)
    assert read_foreign_file(path, 10) == b"x" * 10
    with open_foreign_file(path) as stream:
        stream.seek(4)
        assert stream.read(100) == b"x" * 6
    (tmp_path / "link").symlink_to("file")
    assert read_foreign_file(tmp_path / "link", 10, follows_links=True) == b"x" * 10
    with pytest.raises(FileNotFoundError):
        read_foreign_file(tmp_path / "none", 100)


def sparse(path: Path) -> None:
    path.touch()
    os.truncate(path, 2**33)


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda path: path.symlink_to("private"), "is a link"),
        (os.mkfifo, "regular"),
        (Path.mkdir, "regular"),
        (lambda path: path.write_bytes(b"x" * 101), "longer than 100 bytes"),
        (sparse, "longer than 100 bytes"),
    ],
    ids=["link", "pipe", "directory", "long", "sparse"],
)
def test_what_is_no_short_regular_file_is_refused_at_once(
    tmp_path: Path, make: Callable[[Path], object], problem: str
) -> None:
    (tmp_path / "private").write_text("secret")
    make(tmp_path / "file")
    cases = {tmp_path / "file": problem, Path("/dev/zero"): "regular", tmp_path / "private" / "x": "cannot be read"}
    began = time.monotonic()
    for path, words in cases.items():
        with pytest.raises(ForeignDataError, match=words):
            read_foreign_file(path, 100)
    assert time.monotonic() - began < 1


def test_what_is_to_be_private_is_read_only_if_it_is(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("content")
    for mode in (0o644, 0o620):
        path.chmod(mode)
        with pytest.raises(ForeignDataError, match="is not ours alone"):
            read_foreign_file(path, 100, is_private=True)
    path.chmod(0o600)
    assert read_foreign_file(path, 100, is_private=True) == b"content"


def test_a_directory_behind_a_link_is_refused_and_one_that_is_not_there_told_apart(tmp_path: Path) -> None:
    (tmp_path / "real" / "inner").mkdir(parents=True)
    (tmp_path / "link").symlink_to("real")
    assert foreign_directory(tmp_path, "real/inner") == tmp_path / "real" / "inner"
    assert foreign_directory(tmp_path, "real/none") is None
    for name in ("link", "link/inner"):
        with pytest.raises(ForeignDataError, match="link is a link; expected a directory"):
            foreign_directory(tmp_path, name)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        ('{"a": {"b": 1}}', "the place: a.b: Input should be a valid string"),
        ('{"a": {"' + "\\n".join("xy" * 500) + '": 1}}', "…: Input should be a valid string"),
        ("[]", "the place: the document: Input should be an object"),
        ('{"a": NaN}', "the place: no JSON"),
    ],
)
def test_a_document_of_another_kind_is_refused_in_a_line(data: str, problem: str) -> None:
    with pytest.raises(ForeignDataError) as caught:
        validated(dict[str, dict[str, str]], data, "the place")
    assert problem in str(caught.value)
    assert len(str(caught.value)) < 600
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"{", "no JSON"),
        (b"\xff", "no JSON"),
        (b"NaN", "NaN is no number"),
        (b"[-Infinity]", "-Infinity is no number"),
        (b"[1e999]", "too large"),
        (b'{"a": 1e+0400}', "too large"),
        (b"[" + b"1" * 400 + b".0]", "too large"),
        (b'"\\ud800"', "surrogate"),
        (b'{"\\uDfff": 1}', "surrogate"),
        ('"\ud800"', "no JSON"),
        (b"[9223372036854775808]", "64 bits"),
        (b"1" * 5000, "no JSON"),
        (b"[" * 100_000 + b"]" * 100_000, "deep"),
        (b"[" * (MAX_JSON_DEPTH + 1) + b"]" * (MAX_JSON_DEPTH + 1), "deep"),
        (b'{"a":' * (MAX_JSON_DEPTH + 1) + b"1" + b"}" * (MAX_JSON_DEPTH + 1), "deep"),
        (b" " * 2000, "longer than 1000 bytes"),
    ],
)
def test_json_that_could_hurt_is_refused(data: bytes | str, problem: str) -> None:
    limit = 1000 if problem.startswith("longer") else 2**20
    with pytest.raises(ForeignDataError, match="^the place: .*" + problem):
        load_json(data, "the place", limit_bytes=limit)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    ),
    st.booleans(),
)  # fmt: skip
def test_all_other_json_is_read_as_it_is(document: object, is_ascii: bool) -> None:
    assert load_json(json.dumps(document, ensure_ascii=is_ascii).encode(), "it") == document


@given(st.text() | st.text("\x1b\x9b\u202e[31mabc\n\t\ud800"))
def test_nothing_that_steers_a_terminal_gets_through(text: str) -> None:
    shown = terminal_text(text)
    assert not set(shown) & {*map(chr, (*range(9), *range(11, 32), *range(127, 160), *range(0x202A, 0x202F)))}
    shown.encode()
    assert terminal_text(shown) == shown
    # What is hidden is shown by its number
    assert terminal_text("a\x1b[2Jb\x9bc\u202ed\té\n") == "a\\x1b[2Jb\\x9bc\\u202ed\té\n"
