"""What is looked at in separate passes, never while something is timed.

Each pass returns flat facts: what it cannot know is null, and `<pass>_problem` says why in one line.
"""
