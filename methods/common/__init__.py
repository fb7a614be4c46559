"""What methods share: the contract, the registry, configuration, schedules, networks, learners."""
