"""Whether the tests notice wrong code: ``make mutants``."""
