# Tokenizers, templates and grammars come from the Rust library; its header is for this module only.
target_link_libraries(braid_text PRIVATE rust_text)
set(BRAID_KIND quick)
