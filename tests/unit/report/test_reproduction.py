"""A reproduction, as text."""

from orchestrator.analysis import (
    Change,
    Comparison,
    Estimate,
    Judgement,
    ModeComparison,
    Pairing,
    Ratio,
    Shape,
    Sides,
    TrialPlace,
    Verdict,
)
from orchestrator.report import render_reproduction
from runners.contract import Status
from tests.printing import printed

SHAPE = Shape("bert-base", 128, 0, "", "float32", "cpu", 2, 0, "{}")
SIDES = Sides(TrialPlace("old", "lab1", "k1"), TrialPlace("new", "lab2", "k1"))
THEN, NOW = Estimate(0.0122, 0.0110, 0.0134, 3, 33), Estimate(0.0121, 0.0115, 0.0127, 4, 40)


def mode(verdict: Verdict | None, ratio: Estimate | None, then: Estimate | None = THEN) -> ModeComparison:
    if verdict is None or ratio is None:
        return ModeComparison("one call at a time", then, NOW, None)
    judgement = Judgement(verdict, 0.05, 9 if verdict is Verdict.UNDECIDED else None)
    return ModeComparison("one call at a time", then, NOW, Ratio(ratio, Pairing.UNPAIRED, None, judgement))


def comparison(*modes: ModeComparison, **more: object) -> Comparison:
    values = {
        "statuses_then": {Status.OK: 3},
        "statuses_now": {Status.OK: 4},
        "reasons_now": (),
        "sides": SIDES,
        **more,
    }
    return Comparison(shape=SHAPE, batch=4, backend="eager", modes=modes, **values)  # type: ignore[arg-type]


def text(*comparisons: Comparison, differing: tuple[Change, ...] = (), notes: tuple[str, ...] = ()) -> str:
    return printed(render_reproduction(comparisons, differing, notes), 160)


def ratio(low: float | None, high: float | None, value: float = 1.0) -> Estimate:
    return Estimate(value, low, high, 7, 73, 4)


def test_then_and_now_stand_side_by_side() -> None:
    shown = text(comparison(mode(Verdict.EQUIVALENT, ratio(0.981, 1.0249, 1.008))))
    for words in (
        "bert-base, 128 tokens, float32, cpu with 2 threads, batch 4, eager",
        "12.2 ms [11.0, 13.4]", "3 rounds, 33 samples", "12.1 ms [11.5, 12.7]", "4 rounds, 40 samples",
        "x1.008 [0.981, 1.025]", "latency then over latency now, above 1 is faster now",
        "then: old on lab1, trial key k1, 3 ok", "now:  new on lab2, the same trial key, 4 ok",
        "Nothing else that is known differs",
    ):  # fmt: skip
        assert words in shown


def test_each_verdict_has_its_words() -> None:
    words = {
        Verdict.EQUIVALENT: "reproduced within 3%",
        Verdict.FASTER: "faster now",
        Verdict.SLOWER: "slower now",
        Verdict.SLIGHTLY_SLOWER: "reproduced within 3%, slightly slower now",
        Verdict.UNDECIDED: "undecided: neither a difference nor equality",
    }
    for verdict, expected in words.items():
        assert expected in text(comparison(mode(verdict, ratio(0.9, 1.1)))), verdict
    assert "one process only" in text(comparison(mode(Verdict.UNDECIDED, ratio(None, None))))
    assert "no latency then" in text(comparison(mode(None, None, then=None)))


def test_verdicts_are_counted_with_what_could_have_been_found_and_what_a_decision_takes() -> None:
    same, slower = mode(Verdict.EQUIVALENT, ratio(0.99, 1.01)), mode(Verdict.SLOWER, ratio(0.5, 0.6, 0.55))
    shown = text(comparison(same, slower), comparison(same, mode(Verdict.UNDECIDED, ratio(0.9, 1.1))))
    for words in (
        "2 reproduced within 3%, 1 slower now, 1 undecided", "(of 4 ratios)", "all 4 judged together (Holm)",
        "Smallest difference that could have been found: 5 %.", "1 undecided: a decision takes about 5 sessions more.",
    ):  # fmt: skip
        assert words in shown


def test_failures_of_now_say_why() -> None:
    shown = text(comparison(statuses_now={Status.OOM: 2}, reasons_now=("killed at 4 GiB",)))
    assert all(words in shown for words in ("2 oom", "killed at 4 GiB", "nothing to compare"))


def test_what_differs_is_listed_by_group() -> None:
    changed = (Change("system", "kernel.release", "6.1", "6.2"), Change("conditions", "load_1m", "0.1", "4"))
    shown = text(comparison(), differing=changed, notes=("h1: environment cpu is identical",))
    lines = [line.rstrip() for line in shown.splitlines()]
    start = lines.index("What else differs between then and now:")
    assert lines[start + 1 : start + 3] == ["  System", "    kernel.release: 6.1 → 6.2"]
    assert "Conditions, medians before the trials" in shown
    assert "h1: environment cpu is identical" in shown
