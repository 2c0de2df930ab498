"""Sessions of ONNX Runtime: what is asked of one, and the check that this is what was got."""

import inspect
import os
from dataclasses import dataclass
from typing import Any, Dict, Iterable, List, Optional

from runners.backends.onnx_export import memory_ran_out
from runners.backends.onnxruntime_libraries import library_knows
from runners.contract.catalogue.entries import CUDA
from runners.workloads.base import Unsupported

CPU_PROVIDER = "CPUExecutionProvider"
CUDA_PROVIDER = "CUDAExecutionProvider"

_LEVELS = {0: "ORT_DISABLE_ALL", 1: "ORT_ENABLE_BASIC", 2: "ORT_ENABLE_EXTENDED", 3: "ORT_ENABLE_ALL"}
_SPINNING = "session.intra_op.allow_spinning"
_TF32 = "use_tf32"
USER_STREAM = "user_compute_stream"
"""The option that names a stream of the caller's."""
_MAX_REASON = 300


@dataclass(frozen=True)
class SessionSettings:
    """All that decides a session."""

    path: str
    """Of the graph."""
    device: str
    threads: int
    """Intra-operator threads; operators run one after the other."""
    level: int
    """Of optimization, 0 to 3."""
    spinning: bool
    """Idle threads of the pool spin for a while before they sleep."""
    dimensions: Dict[str, int]
    """Sizes of open dimensions, set before the graph is optimized."""
    cuda_graph: bool = False
    """On a GPU: the kernels are recorded in the first run and replayed from then on."""
    stream: Optional[int] = None
    """On a GPU: the CUDA stream on which all work is queued, as an address; None takes one of the runtime's own."""
    profile_prefix: Optional[str] = None
    """If given, the session writes a profile into a file that begins with this."""

    @property
    def provider(self) -> str:
        """The execution provider that nodes are to run on."""
        return provider_of(self.device)


def provider_of(device: str) -> str:
    """The execution provider of a device."""
    return CUDA_PROVIDER if device == CUDA else CPU_PROVIDER


def require_provider(device: str) -> None:
    """Refuses a device that this build of the runtime has no provider for.

    Raises:
        Unsupported: it has none.
    """
    import onnxruntime as ort

    wanted, available = provider_of(device), ort.get_available_providers()
    if wanted not in available:
        raise Unsupported(
            "ONNX Runtime %s was built without %s; it has %s" % (ort.__version__, wanted, ", ".join(available))
        )
    # The libraries that torch has loaded already, or those beside it; older versions have them since their import
    if device == CUDA and hasattr(ort, "preload_dlls"):
        ort.preload_dlls()


def require_known(entries: Iterable[str]) -> None:
    """Refuses a version whose libraries do not know what a trial asks for, and would ignore it.

    Raises:
        Unsupported: it is one.
    """
    import onnxruntime as ort

    for name in entries:
        if not library_knows(name):
            raise Unsupported("ONNX Runtime %s does not know %s" % (ort.__version__, name))


def require_spinning_switch() -> None:
    """Refuses a version whose threads always spin.

    Raises:
        Unsupported: it is one.
    """
    import onnxruntime as ort

    if not library_knows(_SPINNING):
        raise Unsupported("ONNX Runtime %s cannot switch off spinning" % ort.__version__)


def open_session(settings: SessionSettings) -> Any:
    """A session on the provider of the settings' device, and on no other.

    Raises:
        Unsupported: this ONNX Runtime cannot do what is asked, or refuses the graph; the message has its reason.
    """
    import onnxruntime as ort

    # Some versions would create a session on another provider instead of saying why they could not
    takes_more = any(
        p.kind is p.VAR_KEYWORD for p in inspect.signature(ort.InferenceSession.__init__).parameters.values()
    )
    strict: Dict[str, Any] = {"enable_fallback": 0} if takes_more else {}
    options = _session_options(settings)
    try:
        session = ort.InferenceSession(settings.path, options, providers=_providers(settings), **strict)
    except Exception as error:
        raise refusal(error, "refuses") from error
    check_providers(session, settings.provider)
    # A failing run would create the session again, on another provider
    session.disable_fallback()
    return session


def refusal(error: Exception, verb: str) -> Unsupported:
    """What to raise for an exception of the runtime.

    Args:
        error: raised by a session.
        verb: what the runtime does to the graph.

    Raises:
        Exception: the same, where it says that memory ran out: that is no refusal.
    """
    import onnxruntime as ort

    if memory_ran_out(error):
        raise error
    return Unsupported("ONNX Runtime %s %s the graph: %s" % (ort.__version__, verb, _one_line(error)))


def check_providers(session: Any, wanted: str) -> None:
    """Refuses a session that does not prefer the provider that was asked for.

    Raises:
        Unsupported: it does not.
    """
    active = session.get_providers()
    allowed = [wanted] if wanted == CPU_PROVIDER else [wanted, CPU_PROVIDER]
    # Each session has the CPU's provider last, for what the others cannot execute
    if active[:1] != [wanted] or not set(active) <= set(allowed):
        raise Unsupported("ONNX Runtime took the providers %s, not %s" % (", ".join(active), wanted))


def provider_options(session: Any, provider: str) -> Dict[str, str]:
    """The options that a provider runs with, as it tells them; empty where a version does not tell."""
    options = session.get_provider_options() if hasattr(session, "get_provider_options") else {}
    return {name: str(value) for name, value in options.get(provider, {}).items()}


def _session_options(settings: SessionSettings) -> Any:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = settings.threads
    options.inter_op_num_threads = 1
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, _LEVELS[settings.level])
    for name, size in settings.dimensions.items():
        options.add_free_dimension_override_by_name(name, size)
    options.add_session_config_entry(_SPINNING, "1" if settings.spinning else "0")
    if settings.profile_prefix is not None:
        options.enable_profiling = True
        options.profile_file_prefix = settings.profile_prefix
    return options


def _providers(settings: SessionSettings) -> List[Any]:
    if settings.device != CUDA:
        return [CPU_PROVIDER]
    options = {
        "device_id": "0",
        "enable_cuda_graph": "1" if settings.cuda_graph else "0",
        # As torch, whose cudnn.benchmark is off: no search by measuring
        "cudnn_conv_algo_search": "HEURISTIC",
    }
    if library_knows(_TF32):
        # float32 means float32, as for torch
        options[_TF32] = "0"
    else:
        # Read by CUDA's libraries when they start
        os.environ["NVIDIA_TF32_OVERRIDE"] = "0"
    if settings.stream is not None:
        options[USER_STREAM] = str(settings.stream)
    return [(CUDA_PROVIDER, options), CPU_PROVIDER]


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:_MAX_REASON]
