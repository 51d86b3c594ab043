# The engine in one process; its tests resolve options on CPUs that are given.
braid_compile_quickly(braid_engine)
