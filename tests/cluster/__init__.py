"""Checks of the distributed half on machines of their own: network, mount, process and host-name namespaces. Needs root."""
