"""Where processors and GPUs sit, read below a /sys of our own."""

from pathlib import Path

import pytest

from runners.contract import decode, encode
from runners.system import GpuPlace, NumaNode, Private, Topology, bus_id, cores_in, cores_text, topology


def write(root: Path, path: str, text: str) -> None:
    file = root / "sys" / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text + "\n")


@pytest.fixture
def two_nodes(tmp_path: Path) -> Path:
    write(tmp_path, "devices/system/cpu/online", "0-7")
    for cpu in range(8):
        write(tmp_path, f"devices/system/cpu/cpu{cpu}/topology/thread_siblings_list", f"{cpu % 4},{cpu % 4 + 4}")
    write(tmp_path, "devices/system/node/node0/cpulist", "0-1,4-5")
    write(tmp_path, "devices/system/node/node1/cpulist", "2-3,6-7")
    # memory of an accelerator
    write(tmp_path, "devices/system/node/node2/cpulist", "")
    write(tmp_path, "bus/pci/devices/0000:3b:00.0/numa_node", "1")
    write(tmp_path, "bus/pci/devices/0000:3b:00.0/local_cpulist", "2-3,6-7")
    write(tmp_path, "bus/pci/devices/0000:b1:00.0/numa_node", "-1")
    return tmp_path


def test_cores_nodes_and_gpus(two_nodes: Path) -> None:
    asked = [GpuPlace("GPU-1", "0000:3b:00.0"), GpuPlace("GPU-2", "0000:b1:00.0", mig=True), GpuPlace("GPU-3", None)]
    found = topology.probe(str(two_nodes), asked)
    assert found.cores == ("0,4", "1,5", "2,6", "3,7")
    assert found.nodes == (NumaNode(0, "0-1,4-5"), NumaNode(1, "2-3,6-7"))
    assert found.gpus == (
        GpuPlace("GPU-1", "0000:3b:00.0", 1, "2-3,6-7"),
        GpuPlace("GPU-2", "0000:b1:00.0", None, None, mig=True),
        GpuPlace("GPU-3", None),
    )


def test_a_kernel_that_tells_nothing(tmp_path: Path) -> None:
    assert topology.probe(str(tmp_path), [GpuPlace("GPU-1", "0000:01:00.0")]) == Topology(
        gpus=(GpuPlace("GPU-1", "0000:01:00.0"),)
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [("00000000:3B:00.0", "0000:3b:00.0"), ("0000:3b:00.0", "0000:3b:00.0"), ("", None), (None, None)],
)
def test_addresses_on_the_bus_are_written_as_the_kernel_does(text: str | None, expected: str | None) -> None:
    assert bus_id(text) == expected


def test_it_crosses_the_boundary_and_older_documents_lack_it(two_nodes: Path) -> None:
    private = Private("h", "b", (), topology.probe(str(two_nodes)))
    document = encode(private)
    assert decode(Private, document, "private") == private
    del document["topology"]
    assert decode(Private, document, "private").topology is None


@pytest.mark.parametrize(
    ("text", "cores"),
    [
        ("0", (0,)),
        ("0-3,8", (0, 1, 2, 3, 8)),
        ("1,3,5", (1, 3, 5)),
        ("0-2,5,7-8", (0, 1, 2, 5, 7, 8)),
        ("0-1,4-5", (0, 1, 4, 5)),
    ],
)
def test_lists_are_those_of_the_kernel_both_ways(text: str, cores: tuple[int, ...]) -> None:
    assert cores_in(text) == cores
    assert cores_text(reversed(cores)) == text


@pytest.mark.parametrize("text", ["", "a", "1-", "-1", "0,,1"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no list of processors"):
        cores_in(text)
