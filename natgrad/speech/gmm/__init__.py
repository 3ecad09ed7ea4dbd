"""Gaussian mixtures, decision trees, transforms; and how they are trained from alignments."""
