"""The work-conserving engine: runs sharded graphs for real, on CPU cores and CUDA devices."""
