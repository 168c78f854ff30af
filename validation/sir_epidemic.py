"""An ODE posterior of one's own: an SIR epidemic, influenza in a boarding school in January 1978.

Of 763 boys, the numbers confined to bed on 14 days in a row (Anonymous, "Influenza in a boarding school", British Medical
Journal, 4 March 1978, p. 587; the counts as they are commonly quoted). With s and i the shares of the susceptible and
the infectious,

    ds/dt = -beta s i,    di/dt = beta s i - gamma i,    i = i_0, s = 1 - i_0 one day before the first count
    count / 763 ~ N(i, 20/763),    theta = (log beta, log gamma, log i_0) normal with wide priors

Sampled by NUTS, and by HMC on the Fisher metric; both are held against quadrature.
"""

from __future__ import annotations

import time

import numpy as np
import scipy.stats

import refhmc
from refhmc.models.ode import ODE
from validation import judging
from validation.common import command_line, effective_sizes, markdown, save_figure, write_results
from validation.fitzhugh_nagumo_posterior import moments
from validation.judging import ALARM, POWER, level

BOYS = 763
IN_BED = np.array([3, 8, 26, 76, 225, 298, 258, 233, 189, 128, 68, 29, 14, 4])
DAYS = np.arange(1.0, 15.0)


def rhs(t, x, theta):
    s, i = x
    beta, gamma = np.exp(theta[0]), np.exp(theta[1])
    return np.array([-beta * s * i, beta * s * i - gamma * i])


def jacobian(t, x, theta):
    s, i = x
    beta, gamma = np.exp(theta[0]), np.exp(theta[1])
    infected = np.array(
        [beta * i, beta * s, beta * s * i, 0.0, 0.0]
    )  # of beta s i, by s, i, log beta, log gamma, log i_0
    recovered = np.array([0.0, gamma, 0.0, gamma * i, 0.0])
    return np.vstack((-infected, infected - recovered))


def hessian(t, x, theta, out):
    s, i = x
    beta, gamma = np.exp(theta[0]), np.exp(theta[1])
    for row, sign in ((0, -1.0), (1, 1.0)):
        out[row, 0, 1] = out[row, 1, 0] = sign * beta
        out[row, 0, 2] = out[row, 2, 0] = sign * beta * i
        out[row, 1, 2] = out[row, 2, 1] = sign * beta * s
        out[row, 2, 2] = sign * beta * s * i
    out[1, 1, 3] = out[1, 3, 1] = -gamma
    out[1, 3, 3] = -gamma * i


def initial_state(theta):
    """The state on day 0 and its first and second derivatives."""
    i = np.exp(theta[2])
    first, second = np.zeros((2, 3)), np.zeros((2, 3, 3))
    first[:, 2] = second[:, 2, 2] = -i, i
    return np.array([1 - i, i]), first, second


def constrain(q):
    beta, gamma = np.exp(q[..., 0]), np.exp(q[..., 1])
    return {"beta": beta, "gamma": gamma, "R0": beta / gamma, "first_infected": BOYS * np.exp(q[..., 2])}


def epidemic() -> refhmc.Model:
    """The model; only i is observed."""
    return ODE(
        rhs,
        jacobian,
        hessian,
        initial_state=initial_state,
        start_time=0.0,
        times=DAYS,
        y=np.column_stack([np.full(len(DAYS), np.nan), IN_BED / BOYS]),
        sigma=20 / BOYS,
        prior_mean=[0.0, -1.0, -6.0],
        prior_scale=[1.0, 1.0, 2.0],
        names=["log_beta", "log_gamma", "log_i0"],
        constrain=constrain,
        initial=[0.5, -0.8, -6.0],
        name="sir",
    )


def mode_of(model) -> np.ndarray:
    """The posterior mode by Fisher scoring."""
    q = model.initial
    for _ in range(100):
        step = np.linalg.solve(model.fisher(q), model.gradient(q))
        while model.log_density(q + step) < model.log_density(q) and np.abs(step).max() > 1e-10:
            step = step / 2
        q = q + step
        if np.abs(step).max() < 1e-8:
            break
    return q


def kernels() -> dict:
    """By name."""
    fisher = refhmc.metrics.Fisher()
    return {
        "NUTS, dense metric": refhmc.NUTS(metric=refhmc.metrics.Dense()),
        "HMC, Fisher metric, implicit midpoint": refhmc.HMC(step_size=0.5, n_steps=3, step_jitter=0.2, metric=fisher),
    }


def run(model, kernel, chosen) -> dict:
    """Draws, their effective sizes, seconds, z of each coordinate's mean against quadrature."""
    begin = time.process_time()
    result = refhmc.sample(
        model,
        kernel,
        draws=chosen.draws,
        tune=chosen.draws // 2,
        random_seed=chosen.seed,
        raw=True,
        progressbar=False,
        cores=1,
    )
    sizes = effective_sizes(result.draws.reshape(1, -1, model.dim), 4)[0]
    return {
        "seconds": time.process_time() - begin,
        "draws": result.draws,
        "ess": sizes,
        "divergences": int(result.sample_stats["diverging"].sum()),
        "posterior": result.posterior,
    }


def draw(model, draws: np.ndarray) -> None:
    """Counts, and the epidemic's course for a hundred draws."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    days = np.linspace(0, 15, 151)
    course = ODE(
        rhs,
        jacobian,
        hessian,
        initial_state=initial_state,
        times=days,
        y=np.zeros((151, 2)),
        sigma=1.0,
        prior_mean=np.zeros(3),
        initial=model.initial,
    ).data
    picture, axis = plt.subplots(figsize=(6, 3.5))
    for q in draws.reshape(-1, 3)[:: draws.size // 300]:
        axis.plot(days, BOYS * course.solve(q, order=0).states[:, 1], color="tab:blue", alpha=0.06)
    axis.plot(DAYS, IN_BED, "k.", label="in bed")
    axis.set(xlabel="day", ylabel="boys")
    axis.legend()
    save_figure(picture, "sir_epidemic")
    plt.close(picture)


def opening(data: dict) -> str:
    """Return the first line of the page for the contents of its JSON file."""
    z, n = [np.abs(row["z"]).max() for row in data["rows"]], len(kernels())
    bound = scipy.stats.norm.isf(level(3 * n) / 2)
    return judging.line(
        "Found",
        f"the posterior means of {sum(each < bound for each in z)} of {n} kernels agree with quadrature; the largest |z| is "
        f"{max(z):.1f}.",
    )


def main(chosen) -> None:
    """Both kernels, the table, the picture."""
    model = epidemic()
    mode = mode_of(model)
    truth = moments(model, mode, np.linalg.cholesky(np.linalg.inv(-model.hessian(mode))), 1.0, 30.0)
    comparisons = 3 * len(kernels())
    bound = scipy.stats.norm.isf(level(comparisons) / 2)
    body, rows = [], []
    for name, kernel in kernels().items():
        found = run(model, kernel, chosen)
        x = found["draws"].reshape(-1, 3)
        z = (x.mean(axis=0) - truth["mean"]) / (x.std(axis=0) / np.sqrt(found["ess"]))
        values = {key: [float(v.mean()), float(v.std())] for key, v in found["posterior"].items()}
        rows.append(
            {"kernel": name, "z": z, "posterior": values, **{k: found[k] for k in ("seconds", "ess", "divergences")}}
        )
        cells = [f"{mean:.3f} ± {sd:.3f}" for mean, sd in values.values()]
        word = "agrees" if (np.abs(z) < bound).all() else "differs"
        body.append(
            [name, *cells, np.array2string(z, precision=1), word, f"{found['ess'].min():.0f}"]
            + [f"{found['ess'].min() / found['seconds']:.1f}", found["divergences"]]
        )
    draw(model, found["draws"])
    header = [
        "kernel",
        *values,
        "z of the means against quadrature",
        f"|z| < {bound:.1f}",
        "least ESS",
        "ESS/s",
        "divergences",
    ]
    told = (bound + scipy.stats.norm.isf(1 - POWER)) / np.sqrt(min(row["ess"].min() for row in rows))
    text = [
        (__doc__ or "").split("\n\n", 1)[1].strip(),
        f"`python -m validation.sir_epidemic`: 4 chains of {chosen.draws} draws after {chosen.draws // 2} of warm-up, seed "
        f"{chosen.seed}. Mean ± standard deviation of the posterior; processor seconds, warm-up included, on a machine with "
        "other work on it.",
        f"A kernel differs if one of its z has a p below {level(comparisons):.2g} = 1 - (1 - {ALARM})^(1/{comparisons}) "
        f"(Sidak): any false alarm with probability {ALARM:.0%}. A mean wrong by {told:.2f} standard deviations of the "
        f"posterior would have been found with probability {POWER:.0%}.",
        markdown(header, body),
        "![course](sir_epidemic.png)",
    ]
    data = {"rows": rows, "quadrature": truth}
    write_results("sir_epidemic", "An SIR epidemic", "\n\n".join(text), data, opening)
    print(markdown(header, body))


if __name__ == "__main__":
    chosen = command_line(__doc__, draws=1000)
    main(chosen)
