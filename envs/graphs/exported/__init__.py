"""Torch programs as `torch.export` gives them: their operations as nodes that can be placed and run one by one."""
