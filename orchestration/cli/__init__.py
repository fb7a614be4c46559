"""The command line: one small module a command, found by listing this package."""
