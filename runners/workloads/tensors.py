"""What workloads of torch share: weights without initialisers, and the comparison of tensors."""

import ctypes
import json
from abc import abstractmethod
from dataclasses import replace
from typing import Any, BinaryIO, Dict, List, Optional, Tuple, cast

from runners.contract import WorkloadSpec
from runners.contract.catalogue.entries import CUDA
from runners.contract.record import FactValue
from runners.examination.gpu import DeviceLost
from runners.system import cuda_driver, nvml
from runners.workloads.base import Arithmetic, Errors, Inputs, Synchronize, Unsupported, Workload

PRELOAD = ("torch", "runners.workloads.torchvision_import", "torch._dynamo")
"""What every workload of torch preloads first. Operations are counted with the last, which takes two seconds to import;
old versions lack it."""

_TENSOR = "torch.Tensor"
"""Names, in a saved document, the type of a tensor that stands there."""
_TABLE_SIZE = 1 << 20
_WEIGHT_STD = 0.02


class TensorArithmetic(Arithmetic):
    """Outputs are tuples of CPU tensors."""

    def form(self, outputs: Tuple[Any, ...]) -> str:
        return ", ".join("%s%s" % (str(t.dtype).replace("torch.", ""), list(t.shape)) for t in outputs)

    def first_rows(self, outputs: Tuple[Any, ...], count: int) -> Tuple[Any, ...]:
        return tuple(t[:count] for t in outputs)

    def finite(self, outputs: Tuple[Any, ...]) -> bool:
        return all(bool(t.isfinite().all()) for t in outputs)

    def same(self, left: Tuple[Any, ...], right: Tuple[Any, ...]) -> bool:
        import torch

        return all(torch.equal(a, b) for a, b in zip(left, right))

    def errors(self, outputs: Tuple[Any, ...], reference: Tuple[Any, ...]) -> Tuple[Errors, ...]:
        return tuple(_tensor_errors(output, expected) for output, expected in zip(outputs, reference))

    def save(self, document: Dict[str, Any], path: str) -> None:
        tensors: List[Any] = []
        text = json.dumps(document, default=lambda tensor: _noted(tensor, tensors))
        with open(path, "wb") as file:
            file.write(text.encode() + b"\n")
            for tensor in tensors:
                file.write(ctypes.string_at(tensor.data_ptr(), tensor.numel() * tensor.element_size()))

    def load(self, path: str) -> Dict[str, Any]:
        """Never by pickle: other trials may have written here, and old versions would run what they wrote."""
        with open(path, "rb") as file:
            text = file.readline()
            return cast("Dict[str, Any]", json.loads(text, object_hook=lambda found: _tensor_of(found, file)))


def _noted(tensor: Any, tensors: List[Any]) -> Dict[str, Any]:
    """What stands for a tensor in the text; its numbers follow the text, in the order of `tensors`."""
    tensors.append(tensor.detach().cpu().contiguous())
    return {_TENSOR: str(tensor.dtype).replace("torch.", ""), "shape": list(tensor.shape)}


def _tensor_of(found: Dict[str, Any], file: BinaryIO) -> Any:
    import torch

    if _TENSOR not in found:
        return found
    empty = torch.empty(found["shape"], dtype=getattr(torch, found[_TENSOR]))
    data = bytearray(empty.numel() * empty.element_size())
    if file.readinto(data) != len(data):  # type: ignore[attr-defined]
        raise ValueError("%s ends within a tensor" % file.name)
    return torch.frombuffer(data, dtype=empty.dtype).reshape(empty.shape) if data else empty


class TensorWorkload(Workload):
    """A torch module that takes tensors by position and returns a tuple of tensors."""

    arithmetic = TensorArithmetic()
    rows_are_independent = True

    @abstractmethod
    def construct(self, attention: Optional[str]) -> Any:
        """The module with unset parameters; buffers are set."""

    @abstractmethod
    def example(self, generator: Any) -> Inputs:
        """The inputs of a single row in their natural dtypes, drawn from the generator; the first axis is the row."""

    def set_threads(self, threads: int) -> None:
        import torch

        torch.set_num_threads(threads)
        torch.manual_seed(self.spec.seed)
        if self.spec.device == CUDA:
            require_gpu(torch)
            # float32 means float32 on every GPU and in every version of torch
            torch.backends.cuda.matmul.allow_tf32 = False
            torch.backends.cudnn.allow_tf32 = False

    def build(self, attention: Optional[str] = None) -> Any:
        model = self.construct(attention).eval().requires_grad_(False)
        fill_weights(model, self.spec.seed)
        return model.to(device=self.spec.device, dtype=self._dtype())

    def inputs(self, index: int) -> Inputs:
        import torch

        # Row by row, so that a small batch is the beginning of a large one
        seeds = ((self.spec.seed * 1000 + index) * 10000 + row for row in range(self.spec.workload.batch))
        rows = [self.example(torch.Generator().manual_seed(seed)) for seed in seeds]
        return tuple(self._placed(torch.cat(parts), self._dtype()) for parts in zip(*rows))

    def reference(self, index: int, model: Any, double: bool) -> Tuple[Any, ...]:
        import torch

        inputs = self.inputs(index)
        if double:
            model = model.to("cpu").double()
            inputs = tuple(t.cpu().double() if t.is_floating_point() else t.cpu() for t in inputs)
        with torch.inference_mode():
            return tuple(t.cpu() for t in model(*inputs))

    def facts(self, model: Any) -> Dict[str, FactValue]:
        unique = {p.data_ptr(): p for p in model.parameters()}.values()
        return {
            "parameters": sum(p.numel() for p in unique),
            "weight_bytes": sum(p.numel() * p.element_size() for p in unique),
        }

    def cost(self, model: Any) -> Dict[str, FactValue]:
        from runners.examination.flops import count_flops

        one = type(self)(replace(self.spec, workload=replace(self.spec.workload, batch=1)))
        counted = count_flops(model, one.inputs(0))
        return {
            "flops_per_example": counted.get("flops"),
            "macs_per_example": counted.get("macs"),
            "flops_problem": counted.get("flops_problem"),
        }

    def numerics(self) -> Dict[str, FactValue]:
        from runners.examination.numerics import dtype_support

        return dtype_support(self.spec.dtype, self.spec.device)

    def synchronize(self) -> Optional[Synchronize]:
        if self.spec.device != CUDA:
            return None
        import torch

        return cast(Synchronize, torch.cuda.synchronize)

    def shrunk(self) -> WorkloadSpec:
        if "size" not in self.options:
            return super().shrunk()
        workload = self.spec.workload
        return replace(workload, batch=1, options={**workload.options, "size": "shrunk"})

    def _placed(self, tensor: Any, dtype: Any) -> Any:
        return tensor.to(device=self.spec.device, dtype=dtype if tensor.is_floating_point() else None)

    def _dtype(self) -> Any:
        import torch

        return getattr(torch, self.spec.dtype)


def fill_weights(model: Any, seed: int) -> None:
    """Copies all weights out of one table of normal numbers, which is faster than any initialiser.

    Convolutions are scaled to a standard deviation of sqrt(2 / fan_in), which keeps activations in range.
    Buffers are left alone: they hold position indices and running statistics.
    """
    import torch

    table = torch.empty(_TABLE_SIZE).normal_(generator=torch.Generator().manual_seed(seed))
    offset = 0
    for name, parameter in model.named_parameters():
        if parameter.ndim < 2:
            parameter.data.fill_(0.0 if name.endswith("bias") else 1.0)
            continue
        std = _WEIGHT_STD if parameter.ndim == 2 else (2.0 / parameter[0].numel()) ** 0.5
        offset = _scale_from_table(parameter.data.view(-1), table, offset, std)


def _scale_from_table(flat: Any, table: Any, offset: int, std: float) -> int:
    import torch

    done = 0
    while done < flat.numel():
        count = min(flat.numel() - done, table.numel() - offset)
        torch.mul(table[offset : offset + count], std, out=flat[done : done + count])
        done += count
        # A period that is no power of two: rows of the same matrix must not repeat
        offset = (offset + count) % (table.numel() - 7)
    return offset


def _tensor_errors(output: Any, reference: Any) -> Errors:
    got, expected = output.double().flatten(), reference.double().flatten()
    difference = got - expected
    norm = float(expected.norm())
    product = float(got.norm()) * norm
    return Errors(
        max_abs_error=float(difference.abs().max()),
        relative_l2=float(difference.norm()) / norm if norm else float(difference.norm()),
        cosine=float(got @ expected) / product if product else 0.0,
        max_abs_reference=float(expected.abs().max()),
    )


def require_gpu(torch: Any) -> None:
    """Refuses to go on without a CUDA device.

    Raises:
        DeviceLost: NVML shows a GPU, and the driver fails: a fabric manager that is down, a device off the bus.
        Unsupported: there is no GPU, or this torch cannot use one.
    """
    if torch.cuda.is_available():
        return
    status = cuda_driver.start_in_a_child()
    if torch.version.cuda and status not in (None, 0, cuda_driver.NO_DEVICE) and nvml.probe().devices:
        raise DeviceLost("NVML shows a GPU that CUDA does not give: cuInit says %s" % cuda_driver.named(status))
    raise Unsupported("torch %s sees no CUDA device here" % torch.__version__)
