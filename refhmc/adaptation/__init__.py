"""Adaptation in warm-up: step size, metric and trajectory length."""
