"""`lws compare` with two contenders, ten steps and two seeds: `python small_comparison.py ARGUMENTS`."""

from lws_lightning.cli import main
from lws_lightning.compare import plan, rounds, session
from lws_lightning.compare.plan import Timing


def make_small(patch=setattr):
    """Replaces what makes a comparison long; the trial of a few steps has its own test."""
    everyone = session.contenders_for
    patch(plan.LIMITS, "fewest", 10)
    patch(plan.LIMITS, "most", 10)
    patch(rounds, "MOST_SEEDS", 2)
    patch(session, "contenders_for", lambda *given: [c for c in everyone(*given) if c.name in ("none", "learned")])
    patch(session, "measure", lambda configs, *_: ({path.stem: Timing(0.1, 1.0, 0.0) for path in configs}, 30.0, 10.0))


if __name__ == "__main__":
    make_small()
    main()
