"""Proves that a store is sound."""
