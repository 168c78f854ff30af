"""Posteriors of posteriordb as users of refhmc write them, and the command that measures them."""
