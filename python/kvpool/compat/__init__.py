"""Lets programs written for veloxquant_mlx.memory run on kvpool as they stand.

Either ``import kvpool.compat.veloxquant`` before them, or run them by ``python -m kvpool.compat
script.py``.
"""
