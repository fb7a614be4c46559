"""Placements that are compiled in pieces, each for one device, and run as soon as their inputs are there."""
