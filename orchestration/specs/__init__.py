"""What everybody passes around: trials, results, canonical JSON, names of files."""
