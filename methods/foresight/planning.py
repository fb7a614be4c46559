"""Choosing among list schedules by their own plans, before anything is measured. No policy and no measuring belongs here.

As HEFT plans a schedule and knows when it would end, so does every policy. All policies are planned, and variations of those that plan
the earliest end; the best of both are proposed in turn. A plan promises too much, as devices serve nodes in another order than planned:
layered graphs end 2 to 4 % later. Plans that serve nodes as they become ready promise less, and are believed more (`PROMISE`). The
variations that plan best are those whose plans promise most, so policies as they are come first.
"""

from __future__ import annotations

import numpy as np

from envs.problem.distinct import first_of_equals
from methods.foresight.decoding import Decoder
from methods.searching.space import Points

PROMISE = 0.011
"""By how much (of a logarithm) more the plans of policies as they were trained promise than those in order of readiness: the difference of
the mean errors of the five best plans, over problems like those of training and the benchmark's validation problems."""
SAME = 1e-9
"""Relative difference below which two plans end at the same time."""
KEPT = 16
"""Best plans that are varied."""
ROUND = 32
"""Variations a round."""
GREED = 0.2
"""Probability that the best of them is taken, then of the next if it is not, and so on."""
STEPS = (0.02, 0.05, 0.1, 0.3)
"""Standard deviations of a step of a factor's logarithm."""
DEARER = 0.1
"""Probability that a variation draws its factor on transfers anew."""


def planned(decoder: Decoder, plans: int, rng: np.random.Generator) -> Points:
    """Distinct points in the order in which they should be tried; empty if no policy's placement fits the memory.

    Args:
        decoder: of the problem.
        plans: how many variations are planned besides the policies themselves.
        rng: what they are drawn from.
    """
    policies = best = _plan(decoder, Points.plain(decoder.problem, decoder.policies))
    for _ in range(plans // ROUND if len(best.value) else 0):
        best = _best(best.join(_plan(decoder, _varied(best, rng))))
    both = policies.join(best)
    turns = np.argsort(np.concatenate((np.arange(len(policies.value)), np.arange(len(best.value)))), kind="stable")
    both = both.take(turns)
    return both.take(first_of_equals(both.placement))


def _plan(decoder: Decoder, points: Points) -> Points:
    """Placed points, whose value is the calibrated end of the plan."""
    points.placement, ends = decoder.decode(points)
    trained = points.kind < decoder.policies[len(decoder.policies) // 2]
    points.value = ends * np.where(trained, np.exp(PROMISE), 1.0)
    return _best(points)


def _best(points: Points) -> Points:
    """The `KEPT` best; of those that plan to end at the same time the first, for most of them differ in what does not matter."""
    order = np.argsort(points.value, kind="stable")
    order = order[np.isfinite(points.value[order])]
    ends = points.value[order]
    return points.take(order[np.diff(ends, prepend=0.0) > SAME * ends][:KEPT])


def _varied(best: Points, rng: np.random.Generator) -> Points:
    points = best.take(np.minimum(rng.geometric(GREED, ROUND) - 1, len(best.value) - 1))
    _, v, d = points.factors.shape
    for i in range(ROUND):
        some = rng.random(v) < np.exp(rng.uniform(np.log(2.0 / max(2, v)), 0.0))
        points.factors[i, some] += rng.choice(STEPS) * rng.standard_normal((int(some.sum()), d), dtype=np.float32)
        if rng.random() < DEARER:
            points.dearer[i] = np.exp(0.5 * rng.standard_normal())
    return points
