"""Placeto: device by device through the graph."""
