# The Rust library of src/text, built by cargo into a folder that all presets but `fuzz` share (a
# clean build takes minutes, and the library does not depend on the preset). With the crates already
# in cargo's cache no network is needed. Cargo runs only when a file of rust/ has changed.
find_program(CARGO cargo HINTS $ENV{HOME}/.cargo/bin)
if(NOT CARGO)
  message(FATAL_ERROR "cargo not found: Rust 1.87 or newer is needed (rustup installs it)")
endif()

set(RUST_TARGET_DIR ${CMAKE_SOURCE_DIR}/build/rust)
set(RUST_ENVIRONMENT "")
set(RUST_ARGUMENTS "")
set(RUST_LIBRARY ${RUST_TARGET_DIR}/release/libbraid_text.a)
if(BRAID_FUZZ)
  # What libFuzzer needs to see which code an input reaches.
  set(RUST_TARGET_DIR ${CMAKE_SOURCE_DIR}/build/rust-fuzz)
  string(CONCAT flags "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=3 "
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters "
    "-Cllvm-args=-sanitizer-coverage-pc-table -Ccodegen-units=1 -Cdebug-assertions=yes")
  set(RUST_ENVIRONMENT ${CMAKE_COMMAND} -E env "RUSTFLAGS=${flags}")
  # With a target named, cargo leaves out of the flags what runs while it builds.
  set(RUST_TARGET ${CMAKE_SYSTEM_PROCESSOR}-unknown-linux-gnu)
  set(RUST_ARGUMENTS --target ${RUST_TARGET})
  set(RUST_LIBRARY ${RUST_TARGET_DIR}/${RUST_TARGET}/release/libbraid_text.a)
endif()
file(GLOB RUST_SOURCES CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/rust/src/*.rs
  ${CMAKE_SOURCE_DIR}/third_party/derivre/src/*.rs)
add_custom_command(
  OUTPUT ${RUST_LIBRARY}
  COMMAND ${RUST_ENVIRONMENT} ${CARGO} build --release --locked --quiet
          --manifest-path ${CMAKE_SOURCE_DIR}/rust/Cargo.toml --target-dir ${RUST_TARGET_DIR}
          ${RUST_ARGUMENTS}
  DEPENDS ${RUST_SOURCES} ${CMAKE_SOURCE_DIR}/rust/Cargo.toml ${CMAKE_SOURCE_DIR}/rust/Cargo.lock
          ${CMAKE_SOURCE_DIR}/third_party/derivre/Cargo.toml
  COMMENT "Building the Rust library"
  VERBATIM)
# Without add_dependencies: nothing is compiled against the library, so only links wait for the
# file, by its name (a rule of Ninja, which the presets use).
add_custom_target(rust_text_build DEPENDS ${RUST_LIBRARY})

add_library(rust_text STATIC IMPORTED GLOBAL)
set_target_properties(rust_text PROPERTIES
  IMPORTED_LOCATION ${RUST_LIBRARY}
  INTERFACE_INCLUDE_DIRECTORIES ${CMAKE_SOURCE_DIR}/rust/include
  INTERFACE_LINK_LIBRARIES "pthread;dl;m")
