"""Storage of draws and states: in memory, in a checkpoint, in a Zarr store."""
