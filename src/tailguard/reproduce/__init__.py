"""The paper's experiments: specs, cells, results, figures and a table of its claims.

=============  ======================================================================
file           what
=============  ======================================================================
`specs`        every figure as data: panels, methods, sources, seeds
`cells`        one method on one source with one seed: fit, and measure the error
`store`        results as Parquet, a file per finished cell and one per figure
`runner`       all cores; resumes what was interrupted
`claims`       what the paper claims, measured
`plots`        the figures, as SVG and PNG
`report`       one HTML page and a Markdown file
=============  ======================================================================

The command is ``tailguard reproduce``; docs/reproduction.md explains it. Runs are seeded, so none of them is private:
they are experiments about privacy, on public data.
"""
