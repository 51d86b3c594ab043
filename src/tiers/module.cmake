# Fingerprints (segment.h).
target_link_libraries(braid_tiers PRIVATE braid_crypto)
