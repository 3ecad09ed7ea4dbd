"""Section 5.3: where the online update goes when the covariance of its rows stays the same."""
