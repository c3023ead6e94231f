"""The IPU model: runs a program of tiles on this machine and counts bytes and cycles. A model, never hardware."""
