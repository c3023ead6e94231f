"""The main job, end to end: train a small network on real images and say what ran where. ``python -m nxjax.demo``.

Written as a user would write it: it imports nxjax's public names only.
"""
