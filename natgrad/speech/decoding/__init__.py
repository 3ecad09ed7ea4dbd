"""Beam search through a decoding graph, and the lattices that it gives."""
