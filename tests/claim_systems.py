"""Made-up systems for claims, and how a claim is decided about them."""

from collections.abc import Sequence
from pathlib import Path

from orchestrator.analysis.claims import Decision, claim_columns, configurations, decide, load_claims
from orchestrator.analysis.claims.configurations import Configuration
from orchestrator.analysis.snapshot import Snapshot
from orchestrator.store import open_store
from tests.machines import A100, CPU_ONLY, RTX_3090, V100, System
from tests.systems import Made, World
from tests.world import BACKENDS, Effect, spec


def design(system: System) -> tuple:  # type: ignore[type-arg]
    half, device = "float16" if system.is_gpu else "float32", system.device
    return (
        *(spec("bert-base", batch, backend, half, device) for backend in BACKENDS for batch in (1, 2, 8, 32, 128)),
        *(spec("bert-base", batch, "eager", "float32", device) for batch in (1, 2, 8, 32)),
        *(spec("resnet50", batch, backend, half, device) for backend in BACKENDS[:3] for batch in (1, 8, 32, 128)),
        *(spec("bert", 1, "eager", half, device, layers=layers) for layers in (3, 6, 12, 24)),
        *(spec("bert", 1, "eager", half, device, hidden_size=width) for width in (384, 768, 1536, 3072)),
        *(spec("bert", 16, "eager", half, device, hidden_size=width) for width in (768, 1536, 3072)),
        *(spec(name, 1, "eager", half, device) for name in ("funnel-small", "squeezebert", "mobilebert", "distilbert")),
    )


def world(*effects: Effect, rounds: int = 5, systems: tuple[System, ...] = (V100, A100, RTX_3090, CPU_ONLY)) -> World:
    return World(systems=systems, rounds=rounds, effects=effects, design=design, updated=())


def read(made: Made) -> list[Configuration]:
    return configurations(Snapshot.of(open_store(made.directory)).rows(claim_columns(), None))


def decided(text: str, every: Sequence[Configuration], directory: Path) -> Decision:
    path = directory / "claims.yaml"
    head = "version: 1\nclaims:\n  - {id: it, text: It is so., source: a test, paraphrase: so, measured_by: sweeps/quickstart.yaml, "
    path.write_text(head + text + "}\n", encoding="utf-8")
    return decide(load_claims([path])["it"], every)


def of_eager_bert(every: Sequence[Configuration]) -> Configuration:
    """The first of one example of BERT-base in eager."""
    wanted = ["bert-base", "eager", 1]
    return next(one for one in every if [one.row[name] for name in ("workload", "backend", "batch")] == wanted)
