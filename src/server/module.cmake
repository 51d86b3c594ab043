set(BRAID_KIND quick)
# TLS of the public listeners.
target_link_libraries(braid_server PUBLIC braid_ssl braid_crypto)
if(BRAID_TESTS)
  # Tests see which comparisons of keys are made: api_keys_test.cc.
  cmake_language(DEFER CALL target_link_options server_test PRIVATE -Wl,--wrap=CRYPTO_memcmp)
endif()
