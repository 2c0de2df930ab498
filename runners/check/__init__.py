"""What a machine with a GPU is asked before anything is measured on it: `python3 -m runners.check OUT`.

Eight checks, the one that costs most if it is wrong first. Each runs in processes of its own, says what it saw as one
line of JSON, and needs nothing but the standard library beside the frameworks.
"""
