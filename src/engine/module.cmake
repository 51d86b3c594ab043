# The engine in one process; its tests resolve options on CPUs that are given.
set(BRAID_KIND quick)
# The program's part of fingerprints (fingerprint.h).
include(numerics)
braid_add_numerics(braid_engine)
