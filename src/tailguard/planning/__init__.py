"""What to expect of a private fit before any data is touched, and what a wanted accuracy would need.

Read in this order: :mod:`.formula` (the prediction), :mod:`.solve` (the reverse), :mod:`.simulation` (what it is
checked against, and calibrated on), :mod:`.plot`.
"""

from tailguard.planning.formula import MODELS, Plan, Situation, plan
from tailguard.planning.solve import Need, needed_epsilon, needed_rows

__all__ = ["MODELS", "Need", "Plan", "Situation", "needed_epsilon", "needed_rows", "plan"]
