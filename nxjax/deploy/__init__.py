"""From a function to an artifact for a chip: compile, explain, report, measure the deviation."""
