"""The code that runs inside a measured environment.

Nothing here imports more than the standard library and the framework that is being measured. It runs on
Python 3.8 to 3.13, so that environments of different eras are measured by the same code.
"""
