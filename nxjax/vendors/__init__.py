"""Vendors of chips, a folder each: what their tools take, and how they are called. Nothing below knows a vendor."""
