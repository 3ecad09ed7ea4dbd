"""Recipes: the only place where the layers of natgrad meet."""
