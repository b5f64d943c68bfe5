"""``kvpool demo``: real text through mlx_lm's own caches and through pooled ones, side by side.

::

    requests   what is asked
    sizing     a pool of the right size
    books      samples of the pool's books
    runner     all requests on both sides by one schedule
    outcome    what it came to: the object that --json prints
    text       the same for a terminal
    command    all of the above
"""
