"""Recordings and what is said in them: data directories, audio, and what is wrong with either."""
