"""What is taken out of a text, and what stays."""

import json

import pytest

from orchestrator.store.sharing.scrubbing import Scrubber, hosts_in, logins_in, structure_of, users_in

KNOWN = Scrubber.of({"lab1": "host-1", "lab1.cs.example.org": "host-1", "lab10": "host-2", "alice": "user-1"})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("on lab1, LAB10 and lab1.cs.example.org", "on host-1, host-2 and host-1"),
        ("task night-lab1-cpu-r1", "task night-host-1-cpu-r1"),
        ("label laboratory lab12 colab1", "label laboratory lab12 colab1"),
        ("Alice's cache", "user-1's cache"),
        ("/home/alice/x.py and /Users/bob.b/y", "[home]/x.py and [home]/y"),
        ('File "/export/home/bob/a/b.py", line 3', 'File "[home]/a/b.py", line 3'),
        ("/root/.cache/x", "[home]/.cache/x"),
        ("/scratch/team/secret/model.onnx:3", "[path]/model.onnx:3"),
        ("/scratch/team/secret", "[path]"),
        ("/opt/venv/lib/python3.11/torch/x.py /task/code/y.py", "/opt/venv/lib/python3.11/torch/x.py /task/code/y.py"),
        ("and/or 3/4 a/b/c", "and/or 3/4 a/b/c"),
        ("mail bob.b@uni.example.org now", "mail [e-mail] now"),
        ("ssh bob@node7 failed", "ssh [user]@[host] failed"),
        ("https://bob:pw@example.org/x", "https://[user]@example.org/x"),
        ("10.1.2.3:22 and ip=192.168.0.7/24", "[ip]:22 and ip=[ip]/24"),
        ("listens on 0.0.0.0 and 127.0.0.1", "listens on 0.0.0.0 and 127.0.0.1"),
        ("tensorrt==8.4.3.1 1.2.3.4.5 999.1.1.1", "tensorrt==8.4.3.1 1.2.3.4.5 999.1.1.1"),
        ("fe80::1ff:fe23:4567:890a%eth0 ::1 2001:db8::7", "[ip] ::1 [ip]"),
        ("12:34:56 c10::Error at::native 0000:65:00.0", "12:34:56 c10::Error at::native 0000:65:00.0"),
        ("ether 52:54:00:ab:cd:ef up", "ether [mac] up"),
        ("GPU-5f3a1b2c-1111-2222-3333-444455556666", "[uuid]"),
        ("root=UUID=5f3a1b2c-1111-2222-3333-444455556666 ro", "root=UUID=[uuid] ro"),
        ("Serial Number: 1563221009876", "Serial Number: [serial]"),
        ("s/n ABC-123", "s/n [serial]"),
        ("USER=carol HOSTNAME=node9 token=abc", "USER=[removed] HOSTNAME=[removed] token=[removed]"),
        ("see node7.rack.internal and docs.pytorch.org", "see [host] and docs.pytorch.org"),
        ("torch 2.13.0+cpu, 4 threads", "torch 2.13.0+cpu, 4 threads"),
    ],
)
def test_a_text(text: str, expected: str) -> None:
    assert KNOWN.text(text) == expected


def test_a_name_that_could_be_any_word_is_replaced_only_where_it_stands_alone() -> None:
    scrubber = Scrubber.of({"a": "host-1", "10": "host-2", "g1x": "host-3"})
    assert [scrubber.name(name) for name in ("a", "10", "A", "g1x")] == ["host-1", "host-2", "host-1", "host-3"]
    assert scrubber.text("a batch of 10 on g1x") == "a batch of 10 on host-3"


def test_scrubbing_twice_changes_nothing_more() -> None:
    text = "lab1 alice /home/bob/x bob@lab1 10.1.2.3 52:54:00:ab:cd:ef USER=carol serial: X1234 /data/team/x.bin"
    assert KNOWN.text(KNOWN.text(text)) == KNOWN.text(text)


def test_json_stays_json_and_untouched_json_stays_as_it_was() -> None:
    plain = '{"b": 1,  "a": [1.50, null, true, "cpu"]}'
    assert KNOWN.json(plain) == plain
    document = {
        "lab1": {"address": "10.0.0.1", "gpu_serial": 1234567890, "cudnn_version": "9.1.0.70", "tokens": 16},
        "boot_id": "abc",
        "hostname": None,
        "note": 'quote " and /home/alice/x',
    }
    assert json.loads(KNOWN.json(json.dumps(document))) == {
        "host-1": {"address": "[ip]", "gpu_serial": "[removed]", "cudnn_version": "9.1.0.70", "tokens": 16},
        "boot_id": "[removed]",
        "hostname": None,
        "note": 'quote " and [home]/x',
    }
    assert KNOWN.json("{broken lab1") == "{broken host-1"


def test_names_are_learned_from_texts() -> None:
    text = "/home/dora/x /Users/ed/y USER=fay gus@lab1 torch@2.1 HOSTNAME=node3 ssh://hal@node4:22"
    assert users_in(text) == {"dora", "ed", "fay"}
    assert logins_in(text) == {("gus", "lab1"), ("torch", "2.1"), ("hal", "node4")}
    assert hosts_in(text) == {"node3", "node4"}


def test_of_a_document_only_its_shape_is_left() -> None:
    tree = {"version": 1, "hosts": {"lab1": {"port": 22, "labels": {"room": "B7"}, "connection": "ssh"}}, "x": ["B7"]}
    known = ("version", "hosts", "port", "labels", "connection", "ssh")
    assert structure_of(tree, lambda _name: "host-1", known) == {
        "version": 1,
        "hosts": {"host-1": {"port": 22, "labels": {"name-1": "[removed]"}, "connection": "ssh"}},
        "name-3": ["[removed]"],
    }


@pytest.mark.parametrize("piece", ["a", "a-", "/a", "a.", "1.", "a:", "@a", "/home", "://", "serial ", "0f-"])
@pytest.mark.timeout(20)
def test_a_long_line_of_a_log_takes_no_longer_than_its_length(piece: str) -> None:
    text = piece * 100_000
    assert KNOWN.text(f"{text}@ lab1").endswith(" host-1")
    assert "carol" in users_in(f"{text} USER=carol")
