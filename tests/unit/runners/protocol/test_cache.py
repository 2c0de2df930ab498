"""The names of cached work, and how it gets into the cache."""

from dataclasses import replace
from pathlib import Path

import pytest

from runners.backends import make_backend
from runners.contract import BackendSpec, Protocol, TrialSpec, WorkloadSpec
from runners.protocol import cache
from runners.protocol.cache import CacheEntries, Entry
from runners.workloads import make_workload

SHAPE = WorkloadSpec("tiny-bert", batch=1, sequence_length=16)
SPEC = TrialSpec(SHAPE, BackendSpec("onnxruntime", {}), "float32", "cpu", threads=2, seed=0, protocol=Protocol())


def named(spec: TrialSpec, runner: str = "a") -> CacheEntries:
    return cache.entries("/cache", make_backend(make_workload(spec)), runner, reference_batch=8)


def test_a_reference_serves_every_backend_and_protocol() -> None:
    other = replace(SPEC, backend=BackendSpec("eager", {}), threads=1, protocol=Protocol(sync_budget_ms=1))
    assert named(other).reference == named(SPEC).reference


@pytest.mark.parametrize(
    "other",
    [
        replace(SPEC, seed=1),
        replace(SPEC, dtype="bfloat16"),
        replace(SPEC, workload=replace(SHAPE, sequence_length=32)),
    ],
)
def test_what_decides_the_content_decides_the_name(other: TrialSpec) -> None:
    assert named(other).reference != named(SPEC).reference
    assert named(other).artifact != named(SPEC).artifact


def test_batches_share_an_export_and_the_reference_of_the_largest() -> None:
    other = replace(SPEC, workload=replace(SHAPE, batch=4))
    assert named(other) == named(SPEC)
    larger = cache.entries("/cache", make_backend(make_workload(SPEC)), "a", reference_batch=16)
    assert larger.reference != named(SPEC).reference
    assert larger.artifact == named(SPEC).artifact


def test_other_code_makes_other_names() -> None:
    assert named(SPEC, "b").reference != named(SPEC).reference


def test_another_version_of_a_framework_makes_other_names(monkeypatch: pytest.MonkeyPatch) -> None:
    before = named(SPEC)
    monkeypatch.setattr(cache.metadata, "version", lambda name: "99" if name == "onnx" else "1")
    between = named(SPEC)
    monkeypatch.setattr(cache.metadata, "version", lambda name: "100" if name == "onnx" else "1")
    assert len({before.artifact, between.artifact, named(SPEC).artifact}) == 3
    assert named(SPEC).reference == between.reference


def test_an_artifact_depends_on_the_exporter_and_not_on_the_session() -> None:
    legacy = replace(SPEC, backend=BackendSpec("onnxruntime", {"exporter": "legacy"}))
    plain = replace(SPEC, backend=BackendSpec("onnxruntime", {"optimization": 0}))
    assert named(legacy).artifact != named(SPEC).artifact
    assert named(plain).artifact == named(SPEC).artifact


def test_runtimes_that_read_the_same_graph_share_it() -> None:
    openvino = replace(SPEC, backend=BackendSpec("openvino", {}))
    assert named(openvino).artifact == named(SPEC).artifact
    half = [replace(one, dtype="float16") for one in (openvino, SPEC)]
    assert named(half[0]).artifact != named(half[1]).artifact
    assert named(replace(SPEC, backend=BackendSpec("torch_compile", {}))).artifact != named(SPEC).artifact


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
