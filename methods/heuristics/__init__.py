"""Methods that do not learn, one file each."""
