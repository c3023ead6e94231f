"""The doctor: any model, on every target: where it runs, what it costs, what is lost, and what would help.

`examine` is `nx.deploy.doctor`; `command` is ``nxjax doctor``. What is found is a `diagnosis`, shown as text, data and
a page.
"""
