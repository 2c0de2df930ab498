"""The machines of a lab: `hostinventory.yaml`.

The inventory holds what cannot be detected. What a host is made of (CPU, memory, GPU, driver) is read from the
host itself whenever it is used.
"""
