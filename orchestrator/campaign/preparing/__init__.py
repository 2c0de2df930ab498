"""Makes this machine ready to start trials: isolation, cores, memory, environments."""
