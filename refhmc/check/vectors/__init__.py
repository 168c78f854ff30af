"""``refhmc vectors``: golden vectors, and refhmc's own answers to them."""
