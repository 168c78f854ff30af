"""``check.sampler``, ``check.model_and_sampler`` and ``check.minibatch``: samplers by their draws."""
