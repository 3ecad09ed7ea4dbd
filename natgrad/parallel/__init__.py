"""Jobs and parameter averaging: they know neither the model's shape nor what it is trained on."""
