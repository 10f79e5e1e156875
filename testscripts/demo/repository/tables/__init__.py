"""The work of the demo: a few tasks that take a moment."""
