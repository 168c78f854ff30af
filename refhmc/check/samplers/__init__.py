"""``check.sampler``, ``check.sbc`` and ``check.minibatch``: samplers by their draws."""
