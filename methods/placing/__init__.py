"""Placing without learning: list scheduling, moves, constraints, starts."""
