"""The paper's figures and tables as questions to a store: which points they need, and what is known of them."""

from orchestrator.analysis.paper.points import (
    TIMED_AS_THE_PAPER,
    Gathered,
    Point,
    Setting,
    State,
    Trials,
    names_model,
    read_trials,
)
from orchestrator.analysis.paper.published import PUBLISHED, Published, load_published
from orchestrator.analysis.paper.wanted import Wanted, Work, series_ms, wanted_of
