"""What a jitted function costs on the CPU, kernel by kernel: measured (`profile`) or estimated (`cost`).

Tables, HTML, a roofline plot, Perfetto's JSON. Knows the CPU executor's steps and no op.
"""
