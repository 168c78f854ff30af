"""A model, a metric and an integrator combined: the Hamiltonian and its trajectories."""
