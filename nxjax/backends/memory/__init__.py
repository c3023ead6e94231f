"""Memory that several executors use: limits per kind of device, buffers that they share, copies that overlap."""
