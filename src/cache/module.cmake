# Keys of pages (page_key.h).
target_link_libraries(braid_cache PRIVATE braid_crypto)
