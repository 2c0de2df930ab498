"""Which campaign goes on, and what is left of it."""
