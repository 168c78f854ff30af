"""Subjects of other projects, one module per project, which only the environment of that project can import."""
