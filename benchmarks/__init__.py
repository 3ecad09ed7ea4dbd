"""Benchmarks: what natgrad costs and what it gains, each a command."""
