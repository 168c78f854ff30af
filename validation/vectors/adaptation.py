"""Warm-up: dual averaging, the windows, the estimates of variance.

Dual averaging (Hoffman and Gelman 2014), from a first step e_0, m = 1, 2, ...:

    h_m = (1 - 1/(m + 10)) h_{m-1} + (target - a_m)/(m + 10),    log e_m = log(10 e_0) - sqrt(m)/0.05 h_m
    log ebar_m = m^-0.75 log e_m + (1 - m^-0.75) log ebar_{m-1}

Windows: Stan's, from its counters: with buffers of 75 and 50 iterations, or 15 % and 10 % where those with a first
window of 25 do not fit, the end of a window moves by twice the last window's length, and to the end of the slow phase
where the window after it would not fit. Below 20 iterations no metric is learned.

Variances: the sample (co)variance C of n draws, divisor n - 1, and n/(n + 5) C + 5/(n + 5) 10^-3 I.
"""

from __future__ import annotations

from mpmath import mp, mpf


def dual_averaging(first, target, acceptances, noise):
    """Steps after each iteration, and their averages."""
    h, bar, steps, averages = mpf(0), mp.log(first), [], []
    for m, a in enumerate(acceptances, 1):
        share = mpf(1) / (m + 10)
        h = noise((1 - share) * h) + noise(share * (target - a))
        log_step = noise(mp.log(10 * first)) - noise(mp.sqrt(m) * 20 * h)
        eta = mpf(m) ** mpf("-0.75")
        bar = noise(eta * log_step) + noise((1 - eta) * bar)
        steps.append(noise(mp.exp(log_step)))
        averages.append(noise(mp.exp(bar)))
    return {"step_size": steps, "averaged": averages}


def stan_windows(tune):
    """Ends of the windows of Stan's warm-up, by its counters; the first and last phase adapt the step alone."""
    if tune < 20:
        return [["fast", 0, tune]] if tune else []
    first, last, window = 75, 50, 25
    if first + window + last > tune:
        first, last = int(0.15 * tune), int(0.1 * tune)
        window = tune - first - last
    end_slow, ends = tune - last, []
    end = first + window
    while True:
        ends.append(end)
        if end == end_slow:
            break
        window *= 2
        if end + window != end_slow and end + window + 2 * window > end_slow:
            end = end_slow
        else:
            end += window
    phases = [["fast", 0, first]]
    for end in ends:
        phases.append(["slow", phases[-1][2], end])
    return [*phases, ["fast", end_slow, tune]]


def stretched_windows(tune):
    """The same, but for 151 to 199 iterations the first window is stretched to the end: Stan's second has 1 to 49 draws."""
    if 150 < tune < 200:
        return [["fast", 0, 75], ["slow", 75, tune - 50], ["fast", tune - 50, tune]]
    return stan_windows(tune)


def variances(draws, noise):
    """Sample covariance of the draws (n, d), and the regularised one."""
    n, d = len(draws), len(draws[0])
    mean = [sum(column) / n for column in zip(*draws, strict=True)]
    C = [[sum(noise((x[i] - mean[i]) * (x[j] - mean[j])) for x in draws) / (n - 1) for j in range(d)] for i in range(d)]
    keep, add = mpf(n) / (n + 5), mpf(5) / (1000 * (n + 5))
    regularised = [[keep * C[i][j] + (add if i == j else 0) for j in range(d)] for i in range(d)]
    return {"mean": mean, "covariance": C, "regularised": regularised}
