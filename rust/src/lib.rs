//! Hugging Face tokenizers, minijinja and llguidance behind the C interface of
//! include/braid_text.h. The modules hold the logic and know nothing of C; this file and `ffi` are
//! the border: every function there turns panics and errors into an error string.

mod ffi;
mod grammar;
mod json;
mod memo;
mod python;
mod slices;
mod template;
mod tiktoken;
mod tokenizer;
