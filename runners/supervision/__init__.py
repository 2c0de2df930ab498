"""The supervisor: imports the framework once, forks the processes of each trial and survives whatever they do."""
