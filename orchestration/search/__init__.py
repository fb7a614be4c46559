"""Optuna's side of a search."""
