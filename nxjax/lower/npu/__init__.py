"""Programs as graphs for NPUs: one graph, one rule table, one writer per file format."""

from nxjax.lower.npu import ops as ops  # a node is of an op of the vocabulary, which this makes known
