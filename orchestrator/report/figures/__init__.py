"""The paper's figures and tables, drawn from a store. Only this package knows matplotlib.

Nothing is imported here: the library is installed with what draws alone (requirements/report.lock).
"""
