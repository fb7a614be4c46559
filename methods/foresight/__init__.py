"""Foresight: list scheduling that has learned, over many graphs, what a choice costs later."""
