"""What the synthetic store is about: a lab of 48 hosts over two years. Nothing in it was measured.

Sizes and cardinalities are those of a real one: 30 workloads, 8 backends, 12 kinds of GPU with several drivers each,
about 75,000 trial keys, campaigns of a few thousand trials, five rounds each. Texts have the length of real texts.
"""

import hashlib
import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache

WORKLOADS = (
    *("albert-base", "bart-base", "bert-base", "bert-large", "deberta-base", "distilbert", "electra-base", "fnet-base"),
    *("funnel-small", "gpt2", "gpt2-medium", "longformer", "mobilebert", "opt-125m", "reformer", "roberta-base"),
    *("squeezebert", "t5-small", "tiny-bert", "xlnet-base", "convnext-tiny", "densenet121", "efficientnet-b0"),
    *("mobilenet-v2", "resnet18", "resnet50", "swin-tiny", "vit-base", "wav2vec2", "whisper-tiny"),
)
FIRST_VISION = WORKLOADS.index("convnext-tiny")
BACKENDS = (
    *("eager", "torchscript", "torch_compile", "cuda_graphs", "onnxruntime", "tensorrt", "openvino", "torch_tensorrt"),
)
BATCHES = (1, 2, 4, 8, 32, 128)
DTYPES = ("float32", "float16", "bfloat16")
ENVIRONMENTS = (
    *(f"cuda{major}-{year}" for major in (10, 11, 12, 13) for year in (2022, 2023, 2024, 2025)),
    "cuda13-nightly",
)
GPUS = (
    *("NVIDIA H200", "NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB", "NVIDIA A100-PCIE-40GB", "NVIDIA L40S"),
    *("NVIDIA L4", "NVIDIA A10", "NVIDIA RTX A6000", "NVIDIA GeForce RTX 4090", "NVIDIA GeForce RTX 3090"),
    *("Tesla V100-SXM2-32GB", "Tesla T4"),
)
DRIVERS = (
    *("535.161.08", "535.183.06", "550.54.15", "550.90.07", "550.127.08", "555.42.06", "560.35.03", "565.57.01"),
    *("570.86.15", "570.133.20", "575.57.08", "580.65.06"),
)
HOSTS = 48
ROUNDS = 5
HOSTS_PER_CAMPAIGN = 2
KEYS_PER_CAMPAIGN = 5 * len(BACKENDS) * len(BATCHES)
"""Five workloads in every backend and batch, of one data type in one environment."""

ROWS_PER_CAMPAIGN = KEYS_PER_CAMPAIGN * HOSTS_PER_CAMPAIGN * ROUNDS
BLOCKS = len(WORKLOADS) // 5 * len(DTYPES) * len(ENVIRONMENTS)
TRIAL_KEYS = BLOCKS * KEYS_PER_CAMPAIGN
BEGIN = datetime(2024, 11, 1, tzinfo=UTC)
DAYS = 730
METHOD_VERSION, CONTRACT_VERSION = 2, 1


@dataclass(frozen=True)
class Host:
    """A machine of the lab."""

    number: int

    @property
    def name(self) -> str:
        return f"{self.gpu.rsplit(' ', 1)[-1].lower()}-{self.number:02d}"

    @property
    def gpu(self) -> str:
        return GPUS[self.number % len(GPUS)]

    @property
    def gpu_count(self) -> int:
        return (1, 2, 4, 8)[self.number // len(GPUS)]

    @property
    def cpu_model(self) -> str:
        return (
            "AMD EPYC 9654 96-Core Processor",
            "Intel(R) Xeon(R) Platinum 8480+",
            "AMD EPYC 7763 64-Core Processor",
        )[self.number % 3]

    @property
    def cores(self) -> int:
        return (96, 56, 64)[self.number % 3]

    @property
    def memory_bytes(self) -> int:
        return (256 + 128 * (self.number % 5)) * 2**30

    @property
    def hw_id(self) -> str:
        return digest("hardware", self.number)

    def driver(self, day: float) -> str:
        """The driver that was installed on a day: one is upgraded every two months, and some hosts are first."""
        step = int((day + 11 * (self.number % 6)) / DAYS * len(DRIVERS))
        return DRIVERS[min(step, len(DRIVERS) - 1)]

    def kernel(self, day: float) -> str:
        """The kernel that was running on a day."""
        return f"6.{5 + int(day / 120)}.0-{20 + int(day / 30)}-generic"

    def system_id(self, day: float) -> str:
        """The identity of the machine with what was installed on that day."""
        return digest("system", self.number, self.driver(day), self.kernel(day))


@dataclass(frozen=True)
class Campaign:
    """One run of a sweep over five workloads on two hosts."""

    number: int
    total: int
    """How many there are; they are spread evenly over two years."""

    @property
    def day(self) -> float:
        return self.number * DAYS / self.total

    @property
    def started_at(self) -> datetime:
        return BEGIN + timedelta(days=self.day)

    @property
    def campaign_id(self) -> str:
        return f"{self.sweep}-{self.started_at:%Y%m%dT%H%M%SZ}-{digest('campaign', self.number)[:6]}"

    @property
    def sweep(self) -> str:
        return ("nightly", "paper", "drivers", "eras")[self.number % 4]

    @property
    def block(self) -> int:
        """Which trial keys; neighbours in time have little in common."""
        return self.number * 101 % BLOCKS

    @property
    def workloads(self) -> range:
        first = self.block % (len(WORKLOADS) // 5) * 5
        return range(first, first + 5)

    @property
    def dtype(self) -> str:
        return DTYPES[self.block // (len(WORKLOADS) // 5) % len(DTYPES)]

    @property
    def environment(self) -> str:
        return ENVIRONMENTS[self.block // (len(WORKLOADS) // 5) // len(DTYPES)]

    @property
    def hosts(self) -> tuple[Host, ...]:
        first = self.number * 7 % HOSTS
        return tuple(Host((first + 5 * step) % HOSTS) for step in range(HOSTS_PER_CAMPAIGN))


@cache
def digest(*what: object) -> str:
    """An identity, as long as the real ones."""
    return hashlib.sha256(json.dumps([str(part) for part in what]).encode()).hexdigest()[:32]
