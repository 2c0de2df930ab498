"""Statistics that both sides need: a runner to spend its time well, the orchestrator to show intervals."""
