"""The dataflow engine: runs sharded graphs on processor cores for real."""
