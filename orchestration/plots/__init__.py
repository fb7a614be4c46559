"""Pictures and pages: nothing here measures, compares or decides."""
