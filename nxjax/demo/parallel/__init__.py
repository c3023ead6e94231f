"""Training on several devices and processes: one small transformer, six ways to spread it, the same numbers.

python -m nxjax.demo.parallel zero3 --devices 8
python -m nxjax.launch --processes 4 -m nxjax.demo.parallel zero3 --folder run
"""
