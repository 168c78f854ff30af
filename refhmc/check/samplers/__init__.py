"""``check.sampler``, ``check.sbc`` and ``check.minibatch``: samplers examined by their draws."""
