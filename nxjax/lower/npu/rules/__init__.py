"""Lowering rules, one file per family; `table.RULES` holds all of them by the name of the op."""
