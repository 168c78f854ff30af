"""A model, a metric and an integrator put together: the Hamiltonian, trajectories."""
