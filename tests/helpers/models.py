"""A test's own model, made for a few evaluations."""

# ``refhmc.Model(..., in_python=FEW_CALLS)``: to compile it would take longer than the test.
FEW_CALLS = "a few calls are not worth compiling"
