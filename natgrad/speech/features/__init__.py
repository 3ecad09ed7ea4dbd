"""From samples to the features of a model, and features on disk."""
