"""Weighted transducers from HMM states to words, for alignment and for decoding."""
