"""The parts of `nx.bucketed`: sizes that depend on a length, programs of several lengths walked in parallel, and a rule
per op that keeps padding out of the result."""
