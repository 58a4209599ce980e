"""The report of a fit: one page for people, one JSON object for machines, with the same content.

It is made from the model alone, so it can be made again at any time, and says nothing that the model does not. Numbers
that the fit does not know are not made up: errors of prediction, goodness of fit.
"""

from tailguard.fit_report.content import FitReport

__all__ = ["FitReport"]
