"""HSDAG: the method and its policy."""
