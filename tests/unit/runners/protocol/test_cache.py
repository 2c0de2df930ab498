"""The names of cached work, and how it gets into the cache."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from runners.backends import make_backend
from runners.contract import BackendSpec, CacheState, Protocol, TrialSpec, WorkloadSpec
from runners.protocol import cache
from runners.protocol.cache import CacheEntries, Entry
from runners.workloads import make_workload

SHAPE = WorkloadSpec("tiny-bert", batch=1, sequence_length=16)
SPEC = TrialSpec(SHAPE, BackendSpec("onnxruntime", {}), "float32", "cpu", threads=2, seed=0, protocol=Protocol())


def named(spec: TrialSpec, runner: str = "a") -> CacheEntries:
    return cache.entries("/cache", make_backend(make_workload(spec)), runner, reference_batch=8)


@pytest.mark.parametrize(
    ("other", "same_reference", "same_artifact"),
    [
        # A reference serves every backend and protocol
        (replace(SPEC, backend=BackendSpec("eager", {}), threads=1, protocol=Protocol(sync_budget_ms=1)), True, False),
        (replace(SPEC, seed=1), False, False),
        (replace(SPEC, dtype="bfloat16"), False, False),
        (replace(SPEC, workload=replace(SHAPE, sequence_length=32)), False, False),
        # Batches share an export and the reference of the largest
        (replace(SPEC, workload=replace(SHAPE, batch=4)), True, True),
        # An artifact depends on the exporter and not on the session
        (replace(SPEC, backend=BackendSpec("onnxruntime", {"exporter": "legacy"})), True, False),
        (replace(SPEC, backend=BackendSpec("onnxruntime", {"attention": "eager"})), True, False),
        (replace(SPEC, backend=BackendSpec("onnxruntime", {"batch": "fixed"})), True, False),
        (replace(SPEC, backend=BackendSpec("onnxruntime", {"optimization": 0})), True, True),
        # Runtimes that read the same graph share it
        (replace(SPEC, backend=BackendSpec("openvino", {})), True, True),
        (replace(SPEC, backend=BackendSpec("torch_compile", {})), True, False),
    ],
)
def test_what_decides_the_content_decides_the_name(other: TrialSpec, same_reference: bool, same_artifact: bool) -> None:
    assert (named(other).reference == named(SPEC).reference) is same_reference
    assert (named(other).artifact == named(SPEC).artifact) is same_artifact


def test_a_graph_in_half_precision_is_for_the_runtime_that_computes_in_it() -> None:
    half = replace(SPEC, dtype="float16")
    assert named(half).artifact != named(replace(half, backend=BackendSpec("openvino", {}))).artifact


def test_a_larger_batch_needs_another_reference_and_no_other_export() -> None:
    larger = cache.entries("/cache", make_backend(make_workload(SPEC)), "a", reference_batch=16)
    assert larger.reference != named(SPEC).reference
    assert larger.artifact == named(SPEC).artifact


def test_other_code_makes_other_names() -> None:
    assert named(SPEC, "b").reference != named(SPEC).reference


@pytest.mark.parametrize("what", ["_processor", "scope"])
def test_another_processor_environment_or_cold_campaign_makes_other_names(
    monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    before = named(SPEC)
    if what == "scope":
        monkeypatch.setenv(cache.SCOPE_VARIABLE, "another lock")
    else:
        monkeypatch.setattr(cache, what, lambda: ["another"])
    assert named(SPEC).reference != before.reference
    assert named(SPEC).artifact != before.artifact


def test_another_version_of_a_framework_makes_other_names(monkeypatch: pytest.MonkeyPatch) -> None:
    before = named(SPEC)
    monkeypatch.setattr(cache.metadata, "version", lambda name: "99" if name == "onnx" else "1")
    between = named(SPEC)
    monkeypatch.setattr(cache.metadata, "version", lambda name: "100" if name == "onnx" else "1")
    assert len({before.artifact, between.artifact, named(SPEC).artifact}) == 3
    assert named(SPEC).reference == between.reference


def test_the_second_to_publish_gives_way(tmp_path: Path) -> None:
    entry = Entry(str(tmp_path / "entry"))
    for text in ("first", "second"):
        directory = tmp_path / text
        directory.mkdir()
        (directory / "file").write_text(text)
        entry.publish(str(directory))
        assert not directory.exists()
    assert Path(entry.file("file")).read_text() == "first"


def test_what_cannot_be_published_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Entry(str(tmp_path / "entry")).publish(str(tmp_path / "absent"))


def published(directory: Path, name: str = "entry", size: int = 9) -> Entry:
    made, entry = directory / ".partial-made", Entry(str(directory / name))
    (made / "deep").mkdir(parents=True)
    (made / "document").write_bytes(b"x" * size)
    (made / "deep" / "code").write_text("right")
    entry.publish(str(made))
    return entry


POISONS: dict[str, Callable[[Path], object]] = {
    "other bytes": lambda at: (at / "deep" / "code").write_text("wrong"),
    "a file less": lambda at: (at / "document").unlink(),
    "a link": lambda at: ((at / "document").unlink(), (at / "document").symlink_to(at / "deep" / "code")),
    "no manifest": lambda at: (at / "manifest.json").unlink(),
    "a manifest of another kind": lambda at: (at / "manifest.json").write_text('["document"]'),
    "a pipe": lambda at: ((at / "document").unlink(), os.mkfifo(at / "document")),
}


@pytest.mark.parametrize("poison", POISONS)
def test_an_entry_that_differs_from_its_manifest_is_refused_and_removed(tmp_path: Path, poison: str) -> None:
    entry = published(tmp_path)
    assert entry.checked() is CacheState.HIT
    POISONS[poison](tmp_path / "entry")
    assert entry.checked() is CacheState.REFUSED
    assert entry.checked() is CacheState.MISS


def test_what_the_manifest_does_not_name_is_removed_before_anything_is_read(tmp_path: Path) -> None:
    entry = published(tmp_path)
    (tmp_path / "entry" / "deep" / "more").write_text("left by a framework, or by somebody")
    assert entry.checked() is CacheState.HIT
    assert sorted(path.name for path in tmp_path.rglob("*") if path.is_file()) == ["code", "document", "manifest.json"]


def test_of_too_many_bytes_the_least_recently_used_go(tmp_path: Path) -> None:
    for age, name in enumerate(("new", "used", "old")):
        published(tmp_path, name, size=10_000)
        os.utime(tmp_path / name, (1e9 - age, 1e9 - age))
    Entry(str(tmp_path / "old")).checked()
    (tmp_path / ".partial-of-a-killed-task").mkdir()
    cache.clean(str(tmp_path), 25_000)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new", "old"]


def test_only_who_is_alone_with_a_cache_cleans_it(tmp_path: Path) -> None:
    left = tmp_path / ".partial-of-a-neighbour"
    with cache.used(str(tmp_path)):
        left.mkdir()
        with cache.used(str(tmp_path)):
            assert left.exists()
    with cache.used(str(tmp_path)):
        assert not left.exists()
