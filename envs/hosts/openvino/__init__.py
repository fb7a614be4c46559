"""OpenVINO's devices as measurement hosts."""
