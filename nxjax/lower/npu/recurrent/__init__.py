"""Loops that are recurrent layers: what a step computes, in a form that does not depend on how it was written."""
