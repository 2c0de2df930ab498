"""Plans sweeps, runs their trials on the hosts of an inventory and keeps the results."""
