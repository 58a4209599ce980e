"""The compiled loops: plain numba functions, arrays and scalars in, nothing else.

Every kernel releases the interpreter lock, so engines run them on ordinary threads, and is
cached on disk, so only the first call on a machine compiles.
"""
