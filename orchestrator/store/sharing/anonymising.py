"""Results without the people and machines of a lab: for an export that leaves it.

Names of hosts become `host-1`, `host-2`, …, names of users `user-1`, the same everywhere in one export. Identities
stay, so that rows still join. What a system is made of stays, too; what tells it from its twin goes. A text column that
is not listed here as harmless is scrubbed, so that a new column is safe before anyone thinks of it.
"""

import io
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from orchestrator.config import inventory_words
from orchestrator.store.query.reading import View, read_small
from orchestrator.store.schema.tables import with_nested
from orchestrator.store.sharing.scrubbing import Scrubber, hosts_in, logins_in, structure_of, users_in
from orchestrator.store.storage.snapshot import SCHEMAS

HARMLESS: Final = {
    *("trial_id", "trial_key", "reproduces_trial_key", "hw_id", "system_id", "environment_id", "plan_digest"),
    *("image_digest", "image_id", "lock_sha256", "runner_sha256", "image_config_sha256", "image_layers", "git_commit"),
    *("status", "workload", "backend", "dtype", "device", "protocol", "environment", "isolation", "trial_cores"),
    *("torch_version", "transformers_version", "onnxruntime_version", "python_version", "driver_version"),
    *("cpu_model", "gpu_name", "virtualisation", "sync_stopped", "pipelined_stopped", "regime", "mode"),
    *("guards", "guard_flags", "exclusive", "session_id", "interleaving"),
}
"""Digests and words of ours: they stay as they are."""
_NAMES: Final = {"host", "campaign_id", "reproduces", "sweep", "task_id", "versions", "taxmeter_version"}
"""Names in which a host or a user may be mentioned, and that would be torn by rules for free text."""
_DERIVED: Final = {"details", "packages"}
"""Nested columns that the store derives from JSON texts beside them."""
_GENERIC: Final = {
    *("root", "user", "users", "ubuntu", "debian", "admin", "runner", "nobody", "git", "docker", "task", "public"),
    *("localhost", "shared", "none", "unknown", "host", "hosts"),
}
_SHORTEST: Final = 3
"""Shorter names of users are in too many words; their home directories are removed all the same."""
_OTHER_WORDS: Final = {"docker", "podman", "host", "cores"}
"""Engines, which an inventory may also give by address, and the keys of a machine that ran an exported task."""
_ADDRESSES: Final = ("address", "ssh_alias", "jump", "ray_address")


@dataclass(frozen=True)
class Anonymiser:
    """Anonymises the rows of one export."""

    scrubber: Scrubber

    @classmethod
    def of(cls, view: View, texts: Iterable[str] = ()) -> "Anonymiser":
        """Learns the names that are to be replaced.

        Args:
            view: what is exported; the names of all its hosts are learned.
            texts: free texts of its trials.

        Raises:
            StoreError: a file cannot be read.
        """
        campaigns = read_small(view.snapshot, "campaigns").to_pylist()
        systems = read_small(view.snapshot, "systems").to_pylist()
        hosts: dict[str, None] = dict.fromkeys(_hosts_of_trials(view))
        users: set[str] = set()
        for document in (row["inventory_document"] for row in campaigns):
            named, their_users = _people_of(document)
            hosts |= dict.fromkeys(named)
            users |= their_users
        for row in systems:
            private = json.loads(row["fingerprint"]).get("private") or {}
            hosts |= dict.fromkeys(filter(None, [private.get("host_name")]))
        logins: set[tuple[str, str]] = set()
        documents = (value for row in [*campaigns, *systems] for value in row.values() if isinstance(value, str))
        # One text at a time: those of a million trials do not fit into the memory.
        for text in chain(documents, texts):
            hosts |= dict.fromkeys(sorted(hosts_in(text) - _GENERIC))
            users |= users_in(text)
            logins |= logins_in(text)
        known = {host.lower() for host in hosts}
        users |= {user for user, host in logins if host in known}
        return cls(Scrubber.of(_placeholders(hosts, users), (row["campaign_id"] for row in campaigns)))

    def table(self, name: str, rows: pa.Table) -> pa.Table:
        """Rows of a table of the store, or some of its columns.

        Raises:
            StoreError: a JSON text does not fit the schema.
        """
        for number, field in enumerate(rows.schema):
            if (
                field.name not in HARMLESS | _DERIVED
                and (column := self._column(field, rows.column(number))) is not None
            ):
                rows = rows.set_column(number, field, column)
        is_whole = name in SCHEMAS and name != "trials" and rows.schema.names == SCHEMAS[name].names
        # What was derived from the texts says what they said: it is derived again, from what is left of them.
        return with_nested(name, rows) if is_whole else rows.drop_columns(list(_DERIVED & set(rows.schema.names)))

    def _column(self, field: pa.Field, column: pa.ChunkedArray) -> pa.ChunkedArray | None:
        if pa.types.is_string(field.type):
            encoded = pc.dictionary_encode(column.combine_chunks())
            # One text is scrubbed once, however many rows have it.
            clean = [None if text is None else self._text(field.name, text) for text in encoded.dictionary.to_pylist()]
            return pa.chunked_array([pa.array(clean, field.type).take(encoded.indices)], field.type)
        if _holds_text(field.type):
            return pa.chunked_array([pa.array([self.scrubber.value(one) for one in column.to_pylist()], field.type)])
        return None

    def _text(self, column: str, text: str) -> str:
        if column == "task_id":
            return self.scrubber.task(text)
        if column in _NAMES:
            return self.scrubber.name(text)
        if column == "inventory_document":
            return self._inventory(text)
        if column == "fingerprint":
            return self._fingerprint(text)
        return self.scrubber.json(text)

    def _inventory(self, text: str) -> str:
        tree = _parsed(text)
        if not isinstance(tree, dict):
            return "# removed"
        reduced = structure_of(tree, self._host, inventory_words() | _OTHER_WORDS)
        stream = io.StringIO()
        YAML(typ="safe", pure=True).dump(reduced, stream)
        return "# anonymised: the shape of the inventory\n" + stream.getvalue()

    def _host(self, name: str) -> str:
        return self.scrubber.names.get(name.lower(), "host")

    def _fingerprint(self, text: str) -> str:
        document = json.loads(text)
        clean = self.scrubber.value({**document, "private": None})
        if clean == document:
            return text
        # Its digest is not `system_id` any more: whoever verifies it must know why.
        return json.dumps({**clean, "anonymised": True}, sort_keys=True, separators=(",", ":"))


def texts_of(rows: pa.Table) -> Iterator[str]:
    """The distinct free texts of some rows, for `Anonymiser.of`."""
    for field, column in zip(rows.schema, rows.columns, strict=True):
        if pa.types.is_string(field.type) and field.name not in HARMLESS | _NAMES:
            yield from (text for text in pc.unique(column).to_pylist() if text is not None)


def _hosts_of_trials(view: View) -> list[str]:
    found: set[str] = set()
    for rows in (view.snapshot.dataset("trials"), pa.dataset.dataset(view.unsealed)):
        for batch in rows.to_batches(columns=["host"]):
            found |= set(pc.unique(batch["host"]).to_pylist())
    return sorted(name for name in found if name is not None)


def _people_of(document: str) -> tuple[list[str], set[str]]:
    """Hosts and users that an inventory names."""
    tree = _parsed(document)
    if not isinstance(tree, dict):
        return [], set()
    hosts: list[str] = []
    users: set[str] = set()

    def walk(value: Any, key: str) -> None:
        if isinstance(value, dict):
            if key == "hosts":
                hosts.extend(str(name) for name in value)
            for name, one in value.items():
                walk(one, str(name))
        elif isinstance(value, list):
            for one in value:
                walk(one, key)
        elif isinstance(value, str) and key in (*_ADDRESSES, "host"):
            user, separator, host = value.rpartition("@")
            hosts.append(host.partition(":")[0])
            users.update([user] if separator else [])
        elif isinstance(value, str) and key == "user":
            users.add(value)

    walk(tree, "")
    return hosts, users


def _parsed(document: str) -> Any:
    try:
        return YAML(typ="safe", pure=True).load(document)
    except YAMLError:
        return None


def _placeholders(hosts: Iterable[str], users: Iterable[str]) -> dict[str, str]:
    names: dict[str, str] = {}
    number = 0
    for host in hosts:
        if host.lower() in {"localhost", *names} or not host.strip():
            continue
        number += 1
        names[host.lower()] = f"host-{number}"
        # A machine answers to the first part of its name, too.
        short = host.lower().partition(".")[0]
        if short != host.lower() and not short.isdigit():
            names.setdefault(short, f"host-{number}")
    people = sorted({user.lower() for user in users if len(user) >= _SHORTEST} - _GENERIC - set(names))
    return names | {user: f"user-{number}" for number, user in enumerate(people, start=1)}


def _holds_text(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return any(_holds_text(field.type) for field in kind)
    if pa.types.is_map(kind):
        return True
    return _holds_text(kind.value_type) if pa.types.is_list(kind) else bool(pa.types.is_string(kind))
