"""What `nx.bucketed` is made of: sizes that depend on a length, programs of several lengths walked side by side, and a
rule per op that keeps padding out of the result."""
