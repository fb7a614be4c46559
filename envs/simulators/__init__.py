"""What scores a placement without hardware: the SimPy reference and the compiled kernel."""
