"""Measuring placements of OpenVINO models on this machine's devices, for real."""
