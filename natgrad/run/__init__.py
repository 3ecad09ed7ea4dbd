"""A run's directory: its configuration, models, events and lock. It is all that a run leaves."""
