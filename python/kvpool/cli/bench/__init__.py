"""``kvpool bench``: measurements, each as a comparison of things that took turns in one run.

::

    measure    loops, medians, taking turns
    alloc      the allocator against the reference package, malloc and mimalloc
    python_cases, probe     what is measured from Python, here and in processes of its own
    cxx_program             what is measured from C++
    decode     decoding with pooled caches against mlx_lm's own
    counting   what caches do meanwhile
    instructions            instructions a token, under valgrind
    tiny       a model small enough to be built on the spot
"""
