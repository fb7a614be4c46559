"""Computation graphs: synthetic ones, model definitions, capture of real models."""
