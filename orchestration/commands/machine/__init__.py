"""From a model to a running placement on the machine at hand: devices, calibration, search, confirmation by measuring, export."""
