"""Many chains at once: the texts on arrays as a backend of ``refhmc.sample``, on NumPy and on CuPy."""
