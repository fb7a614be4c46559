"""How learners are trained: step by step, whole placements, REINFORCE, PPO."""
