braid_compile_quickly(braid_server)
# TLS of the public listeners.
target_link_libraries(braid_server PUBLIC braid_ssl braid_crypto)
