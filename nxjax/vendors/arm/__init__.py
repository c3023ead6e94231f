"""Arm: Ethos-U through Vela, and Ethos-N."""
