"""Section 5.1: the eigenvalues of the Fisher matrix where the factored one is the unit matrix."""
