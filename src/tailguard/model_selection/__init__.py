r"""Private model selection: the best of several candidates, paid once.

Fitting k candidates and comparing them spends k times. `PrivateGridSearch` repeats one cheap run instead:

1. draw a candidate of the grid at random;
2. fit it, with all but a share of the run's budget;
3. score it on the same rows, with that share: a mean of gains over a guess, each bounded, plus noise.

How often is drawn first, from a public distribution, and secret. Only the best run leaves: its candidate, its model,
its score. Not the other scores, not the other models, not how many runs there were. For that the price is not that of
all the runs but that of one and a part (:mod:`tailguard.privacy.selection`): with 16 runs expected, each has .58 of the
mu of a single fit, where eight candidates that share the budget have .35 each.

**Why the same rows.** Held-out rows would save the share, but cost the fit their part of the rows. With a share s
the fit has noise of size 1/(n sqrt(1 - s)) and the score 1/(n sqrt(s)); with a held-out part f they have 1/(n (1 - f))
and 1/(n f). For the same fit, s = 1 - (1 - f)^2 = 2f - f^2, and sqrt(s) > f: the score is two to four times as quiet.
The optimism of a score on the training rows, about d/n of the noise in y, is below the noise of the score.

**What is not done.** Nothing about the runs is stored, counted, logged or warned of. A ledger is charged, and its
report filed, before the first run: when the search ended would tell how many runs there were. The clock on the wall
does tell; see docs/model-selection.md.
"""

from tailguard.model_selection.search import PrivateGridSearch

__all__ = ["PrivateGridSearch"]
