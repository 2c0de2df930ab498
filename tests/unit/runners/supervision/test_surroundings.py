"""The variables that a runner leaves to the frameworks."""

import sys

import pytest

from runners.supervision.surroundings import settle
from tests.scripted_nvml import nvml

FIRST, SECOND = "GPU-00000000-c686-6821-79a8-32d326c5039c", "GPU-11111111-c686-6821-79a8-32d326c5039c"


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    uuid = (FIRST, SECOND).__getitem__
    answers = nvml(nvmlDeviceGetCount=lambda: 2, nvmlDeviceGetHandleByIndex=int, nvmlDeviceGetUUID=uuid)
    monkeypatch.setitem(sys.modules, "pynvml", answers)


@pytest.mark.parametrize(
    ("visible", "left"),
    [(None, FIRST), ("1", SECOND), ("1,0", SECOND), (SECOND, SECOND), ("MIG-1", "MIG-1"), ("7", "7"), ("", "")],
)
def test_cuda_is_left_one_gpu_by_its_uuid(two_gpus: None, visible: str | None, left: str) -> None:
    environ = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    settle(True, environ)
    assert environ == {"CUDA_VISIBLE_DEVICES": left, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def test_what_changes_results_is_removed_and_the_rest_stays() -> None:
    changing = {
        *("OMP_NUM_THREADS", "TORCH_CUDNN_V8_API_DISABLED", "TORCHINDUCTOR_MAX_AUTOTUNE", "PYTORCH_CUDA_ALLOC_CONF"),
        *("TRITON_CACHE_DIR", "CUDA_LAUNCH_BLOCKING", "NVIDIA_TF32_OVERRIDE", "CUBLAS_WORKSPACE_CONFIG"),
        *("MKL_NUM_THREADS", "ORT_DISABLE_ALL", "CUDNN_LOGINFO_DBG", "KMP_AFFINITY", "CUDA_MODULE_LOADING"),
    }
    staying = {
        *("PATH", "CUDA_HOME", "CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH", "TRITON_LIBCUDA_PATH", "HF_HUB_OFFLINE"),
        *("TAXMETER_CACHE", "PYTHONPATH", "NVIDIA_VISIBLE_DEVICES"),
    }
    environ = dict.fromkeys(changing | staying, "1")
    assert settle(False, environ) == sorted(changing)
    assert set(environ) == staying
