"""Pictures and tables for notebooks, HTML and SVG of plain data; bars of progress. Knows nothing of what is shown.

`page` has the one look of all outputs, `layers` places a graph, `graph` draws it, `charts` draws numbers; `progress`
has bars for what takes long on the host.
"""
