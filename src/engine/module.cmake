# The engine in one process; its tests resolve options on CPUs that are given.
set(BRAID_KIND quick)
