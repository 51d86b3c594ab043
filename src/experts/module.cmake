# 10^5 random loads take seconds.
set(BRAID_SLOW_TESTS RandomLoads.*)
