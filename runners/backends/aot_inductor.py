"""What replaced TorchScript: `torch.export`, compiled ahead of time into a library by AOTInductor."""

import os
import re
import zipfile
from typing import Any, Dict, Optional, cast

from runners.backends import inductor
from runners.backends.preparation import preparing
from runners.backends.torch_module import TorchBackend
from runners.contract.catalogue.entries import CPU
from runners.contract.record import FactValue
from runners.workloads.base import Call, Inputs, Unsupported

_PACKAGE = "package"
_MODEL = "model"
_LAUNCH = re.compile(r"\b(?:cpp_fused\w*|aoti_torch_cpu_\w+|aoti_torch_mkldnn_\w+)\s*\(")
"""A kernel or a library call in the C++ that AOTInductor writes; what only makes a view of a tensor has other names."""


class AotInductor(TorchBackend):
    """The graph that `torch.export` takes of the model, as a shared library without Python between its kernels.

    The artifact is the unpacked package: the library with the weights, and the source it was compiled from. A package
    that is a file would be unpacked by each process into the directory for temporary files, weights included.
    """

    has_artifact = True
    # Nothing of it has run on a GPU, so nothing says that a graph can record it
    capturable = False

    def artifact_identity(self) -> Dict[str, Any]:
        # The compiler writes the number of threads into the code
        return {**self.options, "threads": self.spec.threads, "device": self.spec.device}

    def make_artifact(self, directory: str) -> Dict[str, FactValue]:
        import torch

        self._refuse()
        torch.set_num_threads(self.spec.threads)
        inductor.configure(os.path.join(directory, "inductor"))
        model, inputs = self.workload.build(), self.workload.inputs(0)
        with torch.no_grad():
            with preparing("torch.export"):
                program = torch.export.export(model, tuple(inputs), strict=False)
            package = os.path.join(directory, "model.pt2")
            configuration = {"freezing": self.options["freezing"]}
            with preparing("AOTInductor"):
                torch._inductor.aoti_compile_and_package(program, package_path=package, inductor_configs=configuration)
        with zipfile.ZipFile(package) as archive:
            archive.extractall(os.path.join(directory, _PACKAGE))
        os.remove(package)
        return {"artifact_bytes": inductor.bytes_of(directory)}

    def build(self) -> None:
        return None

    def load(self, model: Any, artifact: Optional[str]) -> Call:
        import torch

        self._refuse()
        assert artifact is not None
        from torch.export.pt2_archive._package import AOTICompiledModel

        self._package = os.path.join(artifact, _PACKAGE)
        [root] = os.listdir(self._package)
        loader = torch._C._aoti.AOTIModelPackageLoader(os.path.join(self._package, root), _MODEL, False, 1, -1)
        return cast(Call, AOTICompiledModel(loader))

    def operations(self, call: Call, inputs: Inputs) -> Optional[Dict[str, int]]:
        if self.spec.device != CPU:
            return None
        sources = [
            os.path.join(at, name)
            for at, _, names in os.walk(self._package)
            for name in names
            if name.endswith(".wrapper.cpp")
        ]
        if len(sources) != 1:
            return None
        with open(sources[0], encoding="utf-8") as source:
            # Their names are numbers in the order of compilation
            return {"launch": launches(source.read())}

    def _refuse(self) -> None:
        import torch

        try:
            # What `load` needs: known before minutes of compilation
            import torch.export.pt2_archive._package
        except ImportError as error:
            raise Unsupported("torch %s has no AOTInductor packages to load in place" % torch.__version__) from error


def launches(source: str) -> int:
    """Kernels and library calls of one call of the model.

    Args:
        source: the C++ that AOTInductor wrote of it.
    """
    _, _, body = source.partition("::run_impl(")
    return len(_LAUNCH.findall(body))
