"""Experiments that repeat the tables and figures of the papers; each is a command, `python -m validation.<name>`."""
