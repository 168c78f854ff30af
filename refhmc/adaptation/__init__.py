"""What warm-up learns: the step size, the metric, and in which windows."""
