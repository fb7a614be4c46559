"""Sweeps, trials, reward services, tracking, reports and the command line."""
