# Sums of files (checksums.h).
target_link_libraries(braid_model PRIVATE OpenSSL::Crypto)
