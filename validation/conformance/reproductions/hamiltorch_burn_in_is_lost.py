"""hamiltorch: where a chain continues if the first transition after the burn-in is rejected."""

import hamiltorch
import torch

hamiltorch.set_random_seed(1)
RUNS, BURN, START = 60, 20, torch.full((2,), 5.0)


def log_density(q):
    return -0.5 * torch.sum(q**2)


firsts = []
for _ in range(RUNS):
    draws = hamiltorch.sample(
        log_density, START, num_samples=BURN + 2, burn=BURN, num_steps_per_sample=3, step_size=1.2, verbose=False
    )
    firsts.append(draws[1])  # draws[0] is the start by convention; draws[1] is the first state after the burn-in
firsts = torch.stack(firsts)
at_start = (firsts == START).all(1)
print(
    f"Expected: after {BURN} transitions no chain is at its start, 5 standard deviations from the mean in both coordinates."
)
print(f"Obtained: {int(at_start.sum())} of {RUNS} chains are exactly at their start.")
print(f"Largest coordinate of the other chains: {float(firsts[~at_start].abs().max()):.2f}")
