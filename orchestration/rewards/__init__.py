"""Who scores placements: evaluators, services, leases, caches, stores, queues."""
