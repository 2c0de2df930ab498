"""JAX on a CPU: the torch model, traced by torchax. `jax` compiles it as a whole, `jax_eager` each operation alone."""

import os
import re
from abc import abstractmethod
from collections import Counter
from typing import Any, Dict, List, Optional, Tuple, cast

from runners.backends.base import Backend
from runners.backends.inductor import bytes_of
from runners.backends.preparation import preparing
from runners.contract.record import FactValue
from runners.workloads.base import Call, Inputs, Unsupported

_CACHE = "compiled"
_POOL = "tf_XLAEigen"
"""What XLA calls the threads that compute."""
_INSTRUCTION = re.compile(r"^  (?:ROOT )?%?\S+ = .*? ([\w-]+)\(", re.MULTILINE)
_NO_WORK = ("parameter", "constant", "tuple", "bitcast", "get-tuple-element")

# torchax 0.0.13 names overloads that torch 2.13 no longer has. Nobody calls them, so that declaring them is enough.
_MISSING_OVERLOADS = {
    "all": ("dimname", "dimname_out"),
    "index_add": ("dimname",),
    "index_copy": ("dimname",),
    "index_copy_": ("dimname",),
    "index_fill": ("Dimname_Scalar", "Dimname_Tensor"),
    "index_fill_": ("Dimname_Scalar", "Dimname_Tensor"),
    "norm": ("names_ScalarOpt_dim", "names_ScalarOpt_dim_dtype", "names_dtype_out", "names_out"),
    "prod": ("dim_Dimname",),
    "std": ("correction_names", "correction_names_out", "names_dim", "names_out"),
    "std_mean": ("correction_names", "names_dim"),
    "unbind": ("Dimname",),
}


class _Torchax(Backend):
    """A function of JAX over the weights of the torch model.

    The artifact is JAX's cache of compiled code, filled by a first call in a process of its own: `artifact_s` holds the
    cold compilation, and in the process that measures JAX still traces, and finds what was compiled.
    """

    # Not torchax: it switches off the fused encoder layers of torch in the process that imports it
    preload = ("torch", "jax")
    has_artifact = True

    def artifact_identity(self) -> Dict[str, Any]:
        # The compiler splits the work by the number of threads
        return {"threads": self.spec.threads}

    def host_threads(self) -> int:
        # torch computes nothing here, and its threads would compete
        return 1

    def make_artifact(self, directory: str) -> Dict[str, FactValue]:
        call = self.load(self.build(), directory)
        with preparing("JAX"):
            call(*self.native(self.workload.inputs(0)))
        return {"artifact_bytes": bytes_of(directory)}

    def load(self, model: Any, artifact: Optional[str]) -> Call:
        assert artifact is not None
        # XLA asks for the number of processors once, when its first client is made
        os.environ["NPROC"] = str(self.spec.threads)
        import jax

        jax.config.update("jax_platforms", "cpu")
        jax.config.update("jax_compilation_cache_dir", os.path.join(artifact, _CACHE))
        # Its path would be part of the key of what is cached
        jax.config.update("jax_persistent_cache_enable_xla_caches", "none")
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
        self._events: List[str] = []
        jax.monitoring.register_event_listener(lambda event, **_: self._events.append(event))
        _declare_missing_overloads()
        with preparing("torchax"):
            import torchax

            _settle_weights(model)
            self._weights, self._function = torchax.extract_jax(model)
        with preparing("JAX"):
            call = self._made()
        self._threads = _computing_threads()
        if self._threads != self.spec.threads:
            raise Unsupported("JAX has %d threads, not %d" % (self._threads, self.spec.threads))
        return call

    def native(self, inputs: Inputs) -> Inputs:
        from torchax.ops.mappings import t2j

        return tuple(t2j(tensor) for tensor in inputs)

    def outputs(self, result: Any) -> Tuple[Any, ...]:
        from torchax.ops.mappings import j2t

        return tuple(j2t(array).clone() for array in result)

    def facts(self) -> Dict[str, FactValue]:
        return {"jax_threads": self._threads, "torch_threads": self.host_threads()}

    def examined(self) -> Dict[str, FactValue]:
        counted = Counter(event.rpartition("/")[2] for event in self._events)
        return {"jax_cache_hits": counted["cache_hits"], "jax_cache_misses": counted["cache_misses"]}

    @abstractmethod
    def _made(self) -> Call:
        """What is called, made of the function and its weights."""


class Jax(_Torchax):
    """`jax.jit` of the whole model."""

    def _made(self) -> Call:
        import jax

        inputs = self.native(self.workload.inputs(0))
        self._compiled = jax.jit(self._function).lower(self._weights, inputs).compile()
        weights, compiled, wait = self._weights, self._compiled, jax.block_until_ready
        return lambda *inputs: wait(compiled(weights, inputs))

    def operations(self, call: Call, inputs: Inputs) -> Optional[Dict[str, int]]:
        return executed(cast(str, self._compiled.as_text()))


class JaxEager(_Torchax):
    """Each operation is dispatched by Python, and compiled alone at its first call."""

    def _made(self) -> Call:
        import jax

        weights, function, wait = self._weights, self._function, jax.block_until_ready
        # The first array makes the client
        wait(self.native(self.workload.inputs(0)))
        return lambda *inputs: wait(function(weights, inputs))

    def operations(self, call: Call, inputs: Inputs) -> Optional[Dict[str, int]]:
        import jax

        traced = jax.make_jaxpr(self._function)(self._weights, inputs)
        return Counter(_named(equation) for equation in traced.jaxpr.eqns)


def executed(module: str) -> Dict[str, int]:
    """Instructions of the entry of a compiled program by name; those that only name or view data are left out.

    Args:
        module: optimised HLO as text.
    """
    _, _, entry = module.partition("\nENTRY ")
    found = _INSTRUCTION.findall(entry)
    return Counter(name for name in found if name not in _NO_WORK)


def _named(equation: Any) -> str:
    name = equation.params.get("name")
    return "%s %s" % (equation.primitive.name, name) if name else cast(str, equation.primitive.name)


def _computing_threads() -> int:
    names = []
    for task in os.listdir("/proc/self/task"):
        with open("/proc/self/task/%s/comm" % task) as file:
            names.append(file.read().strip())
    return names.count(_POOL)


def _settle_weights(model: Any) -> None:
    """Makes a parameter of each weight that torch computes at every call (weight norm): torchax cannot set those."""
    from torch.nn.utils import parametrize

    for module in list(model.modules()):
        for name in list(getattr(module, "parametrizations", ())):
            parametrize.remove_parametrizations(module, name)


def _declare_missing_overloads() -> None:
    import torch

    library = torch.library.Library("aten", "FRAGMENT")
    for operator, overloads in _MISSING_OVERLOADS.items():
        for overload in set(overloads) - set(getattr(torch.ops.aten, operator).overloads()):
            library.define("%s.%s(Tensor self) -> Tensor" % (operator, overload))
    # What a library declares goes with it
    _DECLARED.append(library)


_DECLARED: List[Any] = []
