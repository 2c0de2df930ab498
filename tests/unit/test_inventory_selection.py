"""Limits, groups and hosts that take no new trials; and the schema for editors."""

import json
from pathlib import Path

import pytest

from orchestrator.config import (
    Connection,
    Host,
    HostState,
    Inventory,
    active_hosts,
    groups_of,
    json_schema,
    select_hosts,
)
from orchestrator.errors import ConfigurationError, ExitCode, NoUsableHostError


def far(name: str, state: HostState = HostState.ACTIVE) -> Host:
    return Host(connection=Connection.SSH, address=f"{name}.lab", state=state)


NAMES = ("a3090-01", "a100-01", "a100-02", "v100-01")
INVENTORY = Inventory(
    hosts={name: far(name) for name in NAMES},
    groups={"ampere": NAMES[:3], "big": ("a100-01", "a100-02", "v100-01")},
)


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        (None, "a3090-01 a100-01 a100-02 v100-01"),
        ("ampere:!a3090-01", "a100-01 a100-02"),
        ("ampere:&big", "a100-01 a100-02"),
        ("&big:!a100-*", "v100-01"),
        ("all:!ampere", "v100-01"),
        ("v100-01,a3090-*", "a3090-01 v100-01"),
        ("!big", "a3090-01"),
        ("a*", "a3090-01 a100-01 a100-02"),
    ],
)
def test_a_limit_takes_names_patterns_and_groups(limit: str | None, expected: str) -> None:
    assert " ".join(select_hosts(INVENTORY, limit)) == expected


def test_an_unknown_name_is_an_error_that_names_the_known_ones() -> None:
    with pytest.raises(
        ConfigurationError, match="no host or group is called hopper; known: a3090.*; groups: ampere, big"
    ):
        select_hosts(INVENTORY, "hopper")
    with pytest.raises(ConfigurationError, match="leaves no host"):
        select_hosts(INVENTORY, "ampere:!ampere")


@pytest.mark.parametrize(
    "limit", ["", " ", ":", ",", "big::ampere", ":big", "big:", "big,", "!", "&", "big:!", "big: "]
)
def test_a_limit_in_which_something_is_empty_is_refused(limit: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        select_hosts(INVENTORY, limit)
    assert caught.value.exit_code == ExitCode.USAGE
    assert str(caught.value) == (
        f"--limit {limit!r}: expected names, groups or patterns joined by ':', such as 'ampere:!a100-07', but "
        f"{'one of them' if limit.strip() else 'it'} is empty; every host is 'all'"
    )


def test_the_groups_of_a_host() -> None:
    assert groups_of("a100-01", INVENTORY) == ["ampere", "big"]
    assert groups_of("a3090-01", INVENTORY) == ["ampere"]


def test_a_draining_host_takes_no_new_trials_and_is_named() -> None:
    said: list[str] = []
    hosts = {"a": far("a"), "b": far("b", HostState.DRAIN)}
    assert list(active_hosts(hosts, said.append)) == ["a"]
    assert said == ["b: its state is drain, so it takes no new trials"]
    with pytest.raises(NoUsableHostError, match="the state of b is drain"):
        active_hosts({"b": hosts["b"]}, said.append)


def test_the_published_schema_is_current(project: Path) -> None:
    published = (project / "docs" / "hostinventory.schema.json").read_text()
    assert published == json_schema(), "run `taxmeter hosts schema >docs/hostinventory.schema.json`"


def test_the_schema_knows_every_key_and_refuses_others() -> None:
    schema = json.loads(json_schema())
    assert schema["required"] == ["version", "hosts"]
    for name in ("Defaults", "Group", "HostEntry", "Expectation"):
        definition = schema["$defs"][name]
        assert definition["additionalProperties"] is False
        undescribed = [key for key, value in definition["properties"].items() if "description" not in value]
        assert undescribed == []
