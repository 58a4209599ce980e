"""``python -m tailguard``: the command line, where its script is not on the path."""

from tailguard.cli import app

app(prog_name="tailguard")
