"""Pictures and tables for notebooks: HTML and SVG of plain data, self-contained. Knows nothing of nxjax.

`page` has the one look of all outputs, `layers` places a graph, `graph` draws it, `charts` draws numbers.
"""
