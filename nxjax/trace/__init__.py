"""The language: types, values, traces, programs. Names no op."""
