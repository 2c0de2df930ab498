"""The paper's figures and tables as questions to a store: which points they need, and what is known of them."""

from orchestrator.analysis.paper.points import Gathered, Point, State, gather
from orchestrator.analysis.paper.published import PUBLISHED, Published, Statement, load_published
from orchestrator.analysis.paper.reading import Trials, read_trials
from orchestrator.analysis.paper.settings import Setting, by_setting, choose, names_model, newest_by_gpu
from orchestrator.analysis.paper.wanted import Configuration, Wanted, configuration_of, series_ms, wanted_of

__all__ = [
    "PUBLISHED",
    "Configuration",
    "Gathered",
    "Point",
    "Published",
    "Setting",
    "State",
    "Statement",
    "Trials",
    "Wanted",
    "by_setting",
    "choose",
    "configuration_of",
    "gather",
    "load_published",
    "names_model",
    "newest_by_gpu",
    "read_trials",
    "series_ms",
    "wanted_of",
]
