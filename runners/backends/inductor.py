"""What torch.compile did, in its own counters, and where it keeps what it compiled."""

import os
import shutil
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Optional

from runners.backends.python_calls import count_calls
from runners.contract.record import FactValue

_CACHE_VARIABLE = "TORCHINDUCTOR_CACHE_DIR"
_THREADS_VARIABLE = "TORCHINDUCTOR_COMPILE_THREADS"
_MAX_REASONS = 3
_MAX_REASON = 200

_BOOKKEEPING = (
    "assert_size_stride",
    "assert_alignment",
    "clear",
    "_empty_strided_cpu",
    "_reinterpret_tensor",
)
"""What compiled graphs call beside kernels: checks, allocations and views."""


def configure(cache: str) -> None:
    """Sets where this process finds and keeps compiled code, and that it compiles in no other process.

    A pool of compiler processes would outlive the compilation and compete with what is timed.
    """
    os.makedirs(cache, exist_ok=True)
    os.environ[_CACHE_VARIABLE] = os.path.abspath(cache)
    os.environ[_THREADS_VARIABLE] = "1"
    from torch._inductor import config

    # The supervisor may have imported it before the variable was set
    config.compile_threads = 1
    if shutil.which("openssl") is None and hasattr(config, "cpp_cache_precompile_headers"):
        # Inductor hashes the headers with that program
        config.cpp_cache_precompile_headers = False
    # Here and not in the first call: it takes a second
    import torch._inductor.compile_fx  # noqa: F401

    _keep_headers()


def _keep_headers() -> None:
    """Moves the compiler's precompiled headers, 150 MB, to the cache that the trials share.

    They are needed even to load code that is compiled already. Their usual place is the directory for temporary files,
    which in a container is emptied after each trial and counts against its memory.
    """
    from torch._inductor import codecache

    from runners.backends.base import CACHE_VARIABLE, HEADERS

    shared = os.environ.get(CACHE_VARIABLE)
    if shared and hasattr(codecache, "_HEADER_DIR"):
        codecache._HEADER_DIR = os.path.join(os.path.abspath(shared), HEADERS)
        codecache._HEADER_LOCK_DIR = os.path.join(codecache._HEADER_DIR, "locks")


def bytes_of(directory: str) -> int:
    """Size of all files below a directory."""
    return sum(os.path.getsize(os.path.join(at, name)) for at, _, names in os.walk(directory) for name in names)


def attempts() -> int:
    """Frames that this process has tried to compile, first and repeated ones."""
    return int(_counter("frames", "total"))


def graph_breaks() -> int:
    """Places where the compiler had to leave a part of the model to Python."""
    return sum(int(count) for count in _counters()["graph_break"].values())


@dataclass(frozen=True)
class _Compilation:
    """One entry of the compiler's own log."""

    recompile_reason: Optional[str]
    skip_reason: Optional[str]
    seconds: Optional[float]


def compile_facts() -> Dict[str, FactValue]:
    """What was compiled in this process, why again, and what came out of the cache."""
    log = _log()
    breaks = _counters()["graph_break"]
    again = [entry.recompile_reason for entry in log if entry.recompile_reason]
    seconds = [entry.seconds for entry in log if entry.seconds is not None]
    return {
        "dynamo_graphs": int(_counter("stats", "unique_graphs")),
        "graph_breaks": graph_breaks(),
        "graph_break_reasons": shortened(list(breaks)),
        "recompiles": len(again),
        "recompile_reasons": shortened(again),
        "compile_s": sum(seconds) if len(seconds) == len(log) else None,
        "fxgraph_cache_hits": int(_counter("inductor", "fxgraph_cache_hit")),
        "fxgraph_cache_misses": int(_counter("inductor", "fxgraph_cache_miss")),
        "fxgraph_cache_bypasses": int(_counter("inductor", "fxgraph_cache_bypass")),
    }


def cuda_graph_facts() -> Dict[str, FactValue]:
    """Whether a mode that promises CUDA graphs replays some."""
    import torch
    from torch._inductor import cudagraph_trees

    manager = cudagraph_trees.get_manager(torch.cuda.current_device(), create_if_none_exists=False)
    recorded = 0 if manager is None else recorded_graphs(manager.roots)
    reasons = [entry.skip_reason for entry in _log() if entry.skip_reason]
    return graph_verdict(recorded, int(_counter("inductor", "cudagraph_skips")), reasons)


def graph_verdict(recorded: int, skips: int, reasons: List[str]) -> Dict[str, FactValue]:
    """What to say of CUDA graphs: nothing skipped is no proof that there are any, and one skipped means not all.

    Args:
        recorded: graphs that exist.
        skips: graphs that the compiler gave up.
        reasons: what it said about those.
    """
    problem = None
    if skips:
        problem = "%d graphs were skipped: %s" % (skips, shortened(reasons) or "no reason given")
    elif not recorded:
        problem = "no CUDA graph was recorded"
    return {
        "cuda_graphs": problem is None,
        "cuda_graphs_problem": problem,
        "cuda_graphs_recorded": recorded,
        "cudagraph_skips": skips,
    }


def recorded_graphs(roots: Dict[Any, List[Any]]) -> int:
    """Nodes of the Inductor's trees of CUDA graphs; each node is one graph.

    Args:
        roots: lists of nodes by function; the children of a node are kept alike.
    """
    waiting = [node for nodes in roots.values() for node in nodes]
    count = 0
    while waiting:
        count += 1
        waiting.extend(node for nodes in waiting.pop().children.values() for node in nodes)
    return count


def launches(function: Callable[[], object]) -> Optional[int]:
    """Kernels and library calls that compiled graphs make on a CPU while `function` runs.

    Null if Python ran parts of the model between graphs: what it calls there is not seen. The graphs are Python modules
    in the cache, and each of their calls is one launch, checks and allocations apart.
    """
    if graph_breaks():
        return None
    cache = os.environ[_CACHE_VARIABLE] + os.sep

    def is_launch(frame: Any, name: str) -> bool:
        return name not in _BOOKKEEPING and str(frame.f_code.co_filename).startswith(cache)

    return count_calls(function, is_launch)


def shortened(reasons: List[str]) -> Optional[str]:
    """The first lines of the first few reasons; None if there are none."""
    lines = [" ".join(reason.split("\n", 1)[0].split())[:_MAX_REASON] for reason in reasons[:_MAX_REASONS]]
    more = len(reasons) - len(lines)
    return "; ".join(lines) + (" and %d more" % more if more else "") if lines else None


def _counters() -> Any:
    from torch._dynamo.utils import counters

    return counters


def _counter(group: str, name: str) -> Any:
    return _counters()[group].get(name, 0)


def _log() -> List[_Compilation]:
    from torch._dynamo import utils

    return [_compilation(entry) for entry in utils.get_compilation_metrics()]


def _compilation(entry: Any) -> _Compilation:
    microseconds = getattr(entry, "duration_us", None)
    return _Compilation(
        recompile_reason=getattr(entry, "recompile_reason", None),
        skip_reason=getattr(entry, "cudagraph_skip_reason", None),
        seconds=None if microseconds is None else microseconds / 1e6,
    )
