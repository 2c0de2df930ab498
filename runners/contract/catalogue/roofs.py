"""The two operators whose best rates are the roofs of a system: arithmetic, and the way to memory.

A product of large square matrices shows how fast a device computes when it has all that it needs; the triad of STREAM
(McCalpin, 1995: a = b + 3 * c over arrays that no cache holds) how fast it reads and writes when next to nothing is
computed. No model is faster than either; Williams et al., 2009, call it the roofline.
"""

from typing import Dict, Mapping

from runners.contract.catalogue.entries import MICRO_OPS, IntegerRange, WorkloadInfo
from runners.contract.spec import OptionValue

GEMM = "op-gemm"
TRIAD = "op-triad"
TRIAD_ARRAYS = 3
"""Two are read and one is written. What a processor reads of the latter before it writes it is not counted, as in
STREAM: the rate of a processor that does so is three quarters of what its memory moves."""
TRIAD_LEAST_BYTES = 128 << 20
"""Per call, below which a triad is no roof of the memory: arrays that stay in a cache show the cache. Calls read eight
pairs in turn, so that with this they go through 680 MiB."""


def _gemm_parameters(options: Mapping[str, OptionValue]) -> int:
    return int(options["width"]) ** 2


# By default a product that two cores end in two seconds and a large GPU within milliseconds, and 128 MiB in each array
# of float32: STREAM asks for four times the largest cache, and calls read eight pairs of arrays in turn
WORKLOADS: Dict[str, WorkloadInfo] = {
    GEMM: WorkloadInfo(
        MICRO_OPS,
        ("torch",),
        options={"width": IntegerRange(1, 32_768, 4_096)},
        parameters=_gemm_parameters,
        about="square matrices, each times the one that is the weights",
    ),
    TRIAD: WorkloadInfo(
        MICRO_OPS,
        ("torch",),
        options={"elements": IntegerRange(1, 1 << 30, 1 << 25)},
        about="STREAM's triad, a = b + 3c",
    ),
}
