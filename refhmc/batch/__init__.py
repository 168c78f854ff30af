"""Many chains at once: the array implementations as backends of ``refhmc.sample``, on NumPy and on CuPy."""
