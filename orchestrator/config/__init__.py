"""What people write down, read once and strictly: inventories, sweeps, and the YAML that both are made of."""
