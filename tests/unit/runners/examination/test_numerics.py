"""Whether a dtype is computed natively."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from runners.examination.numerics import cpu_support, cuda_support, dtype_support, matmul_flags

ZEN4 = {"sse2", "avx", "avx2", "fma", "avx512f", "avx512_bf16"}
SAPPHIRE_RAPIDS = ZEN4 | {"avx512_fp16", "amx_bf16", "amx_int8", "amx_tile"}
HASWELL = {"sse2", "avx", "avx2", "fma"}
NEOVERSE_V1 = {"fphp", "asimdhp", "bf16", "svebf16", "sve", "asimd"}


@pytest.mark.parametrize(
    ("dtype", "machine", "flags", "native", "isa", "problem"),
    [
        ("bfloat16", "x86_64", ZEN4, True, "avx512_bf16", None),
        ("float16", "x86_64", ZEN4, False, None, None),
        ("float32", "x86_64", HASWELL, True, "sse2,avx,avx2,fma", None),
        ("bfloat16", "x86_64", HASWELL, False, None, None),
        ("bfloat16", "x86_64", SAPPHIRE_RAPIDS, True, "avx512_bf16,amx_bf16", None),
        ("float16", "x86_64", SAPPHIRE_RAPIDS, True, "avx512_fp16", None),
        ("float16", "aarch64", NEOVERSE_V1, True, "asimdhp,fphp", None),
        ("bfloat16", "aarch64", {"fphp", "asimdhp"}, False, None, None),
        ("float32", "riscv64", {"x"}, None, None, "the instructions of riscv64 for float32 are not known here"),
        ("float8", "x86_64", ZEN4, None, None, "the instructions of x86_64 for float8 are not known here"),
        ("bfloat16", "x86_64", set(), None, None, "/proc/cpuinfo shows no flags"),
    ],
)
def test_instructions_of_cpus(
    dtype: str, machine: str, flags: set[str], native: bool | None, isa: str | None, problem: str | None
) -> None:
    facts = {"dtype_native": native, "dtype_isa": isa, "dtype_problem": problem}
    assert cpu_support(dtype, machine, flags, {}) == facts


def test_torch_is_believed_if_it_misses_what_the_kernel_shows() -> None:
    facts = cpu_support("bfloat16", "x86_64", SAPPHIRE_RAPIDS, {"amx_bf16": False, "avx512_bf16": True})
    assert facts["dtype_isa"] == "avx512_bf16"
    assert facts["dtype_problem"] == "the CPU has amx_bf16, torch does not use it"
    assert cpu_support("bfloat16", "x86_64", ZEN4, {"avx512_bf16": False})["dtype_native"] is False


@pytest.mark.parametrize(
    ("dtype", "capability", "native"),
    [
        *(("bfloat16", (7, 5), False), ("bfloat16", (8, 0), True), ("bfloat16", (12, 0), True)),
        *(("float16", (5, 2), False), ("float16", (7, 0), True)),
        *(("float32", (3, 7), True), ("float8_e4m3fn", (9, 0), None)),
    ],
)
def test_gpus(dtype: str, capability: tuple[int, int], native: bool | None) -> None:
    facts = cuda_support(dtype, capability)
    assert facts["dtype_native"] is native
    assert facts["dtype_isa"] == f"sm_{capability[0]}{capability[1]}"
    assert (facts["dtype_problem"] is None) == (native is not None)


def with_torch(monkeypatch: pytest.MonkeyPatch, matmul: object, cudnn: object, **more: Any) -> None:
    backends = SimpleNamespace(cuda=SimpleNamespace(matmul=matmul), cudnn=cudnn)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(backends=backends, **more))


class Contradicting:
    """Settings of which torch says that they contradict each other."""

    fp32_precision = "none"

    @property
    def allow_tf32(self) -> bool:
        raise RuntimeError("a mix of the legacy and new APIs")


class Old:
    """Settings of a torch that asserts their names."""

    allow_tf32 = True

    def __getattr__(self, name: str) -> object:
        raise AssertionError("Unknown attribute " + name)


def refuse() -> str:
    raise RuntimeError("a mix of the legacy and new APIs")


NEW = SimpleNamespace(fp32_precision="ieee", allow_tf32=True, allow_fp16_reduced_precision_reduction=True)
NEW_CUDNN = SimpleNamespace(conv=SimpleNamespace(fp32_precision="tf32"), allow_tf32=False, benchmark=False)
OLD_CUDNN = SimpleNamespace(allow_tf32=False, benchmark=True)


@pytest.mark.parametrize(
    ("matmul", "cudnn", "more", "expected"),
    [
        (NEW, NEW_CUDNN, {"get_float32_matmul_precision": lambda: "highest"}, ("highest", False, True, True, False)),
        (Old(), OLD_CUDNN, {}, (None, True, False, None, True)),
        (Contradicting(), SimpleNamespace(), {"get_float32_matmul_precision": refuse}, (None,) * 5),
    ],
    ids=["new", "old", "contradicting"],
)
def test_settings_of_every_torch(
    monkeypatch: pytest.MonkeyPatch, matmul: object, cudnn: object, more: dict[str, Any], expected: tuple[object, ...]
) -> None:
    with_torch(monkeypatch, matmul, cudnn, **more)
    precision, matmul_tf32, convolution_tf32, reduced_float16, benchmark = expected
    assert matmul_flags() == {
        "matmul_precision": precision,
        "matmul_tf32": matmul_tf32,
        "convolution_tf32": convolution_tf32,
        "matmul_reduced_float16": reduced_float16,
        "matmul_reduced_bfloat16": None,
        "cudnn_benchmark": benchmark,
    }


def test_an_environment_without_torch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setitem(sys.modules, "torch.cpu", None)
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text("processor\t: 0\nflags\t\t: fpu sse2 avx512_bf16\n")
    facts = dtype_support("bfloat16", "cpu", str(tmp_path))
    assert (facts["dtype_native"], facts["dtype_isa"], facts["matmul_tf32"]) == (True, "avx512_bf16", None)
    assert dtype_support("bfloat16", "cuda")["dtype_problem"] == "the environment lacks torch"
