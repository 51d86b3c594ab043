//! The border to C: views in, buffers and opaque handles out. `guard` is the only way through it.
//! Safety rests on the caller keeping what include/braid_text.h says: views point to `size`
//! readable bytes, handles come from this library and are freed once, out-pointers are valid.

use std::os::raw::c_char;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Once;

use crate::grammar::{Grammars, Matcher, Words};
use crate::memo::MemoStats;
use crate::template::{Limits, Template};
use crate::tokenizer::{Options, Tokenizer};

#[repr(C)]
#[derive(Clone, Copy)]
pub struct View {
    data: *const c_char,
    size: usize,
}

#[repr(C)]
pub struct Buffer {
    data: *mut c_char,
    size: usize,
    capacity: usize,
}

#[repr(C)]
pub struct Ids {
    data: *mut u32,
    size: usize,
    capacity: usize,
}

#[repr(C)]
pub struct Table {
    token_count: usize,
    bytes: *const u8,
    offsets: *const u32,
    special: *const u8,
    strips_leading_space: i32,
}

impl View {
    unsafe fn bytes<'a>(self) -> &'a [u8] {
        if self.size == 0 {
            &[]
        } else {
            std::slice::from_raw_parts(self.data.cast(), self.size)
        }
    }

    unsafe fn text<'a>(self, what: &str) -> Result<&'a str, String> {
        std::str::from_utf8(self.bytes())
            .map_err(|e| format!("{what} is not valid UTF-8 (byte {})", e.valid_up_to()))
    }
}

impl Buffer {
    fn of(text: String) -> Buffer {
        let mut bytes = std::mem::ManuallyDrop::new(text.into_bytes());
        Buffer { data: bytes.as_mut_ptr().cast(), size: bytes.len(), capacity: bytes.capacity() }
    }
}

/// Runs `body`; a panic becomes an error, an error goes to `*error` and `failure` is returned.
unsafe fn guard<T>(error: *mut Buffer, failure: T, body: impl FnOnce() -> Result<T, String>) -> T {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        std::panic::set_hook(Box::new(|panic| {
            eprintln!("braid text library: {}", panic.to_string().replace('\n', " "));
        }));
    });
    let message = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(value)) => return value,
        Ok(Err(message)) => message,
        Err(panic) => {
            let text = panic
                .downcast_ref::<String>()
                .map(String::as_str)
                .or_else(|| panic.downcast_ref::<&str>().copied())
                .unwrap_or("unknown cause");
            format!("internal error: {text}")
        }
    };
    if !error.is_null() {
        error.write(Buffer::of(message));
    }
    failure
}

#[no_mangle]
pub unsafe extern "C" fn braid_text_buffer_free(buffer: Buffer) {
    if !buffer.data.is_null() {
        drop(Vec::from_raw_parts(buffer.data.cast::<u8>(), buffer.size, buffer.capacity));
    }
}

#[no_mangle]
pub unsafe extern "C" fn braid_text_ids_free(ids: Ids) {
    if !ids.data.is_null() {
        drop(Vec::from_raw_parts(ids.data, ids.size, ids.capacity));
    }
}

/// Frees a handle; a panic while dropping is logged by the hook and goes no further.
unsafe fn free<T>(handle: *mut T) {
    if !handle.is_null() {
        guard(std::ptr::null_mut(), (), || {
            drop(Box::from_raw(handle));
            Ok(())
        })
    }
}

#[no_mangle]
pub unsafe extern "C" fn braid_text_tokenizer_load(
    json: View,
    error: *mut Buffer,
) -> *mut Tokenizer {
    guard(error, std::ptr::null_mut(), || {
        Ok(Box::into_raw(Box::new(Tokenizer::load(json.bytes())?)))
    })
}

#[no_mangle]
pub unsafe extern "C" fn braid_text_tokenizer_load_tiktoken(
    model: View,
    config: View,
    error: *mut Buffer,
) -> *mut Tokenizer {
    guard(error, std::ptr::null_mut(), || {
        Ok(Box::into_raw(Box::new(Tokenizer::load_tiktoken(model.bytes(), config.bytes())?)))
    })
}

#[no_mangle]
pub unsafe extern "C" fn braid_text_tokenizer_free(tokenizer: *mut Tokenizer) {
    free(tokenizer)
}

#[no_mangle]
pub unsafe extern "C" fn braid_text_tokenizer_table(tokenizer: *const Tokenizer) -> Table {
    let table = &(*tokenizer).table;
    Table {
        token_count: table.special.len(),
        bytes: table.bytes.as_ptr(),
        offsets: table.offsets.as_ptr(),
        special: table.special.as_ptr(),
        strips_leading_space: table.strips_leading_space.into(),
    }
}

#[repr(C)]
pub struct Encoding {
    add_special_tokens: i32,
    slice_bytes: usize,
    kept_bytes: usize,
    scope: View,
}

#[no_mangle]
pub unsafe extern "C" fn braid_text_tokenizer_encode(
    tokenizer: *const Tokenizer,
    text: View,
    encoding: Encoding,
    ids: *mut Ids,
    error: *mut Buffer,
) -> i32 {
    guard(error, -1, || {
        let text = text.text("the text")?;
        let options = Options {
            add_special_tokens: encoding.add_special_tokens != 0,
            slice_bytes: encoding.slice_bytes,
            kept_bytes: encoding.kept_bytes,
            scope: encoding.scope.bytes(),
        };
        let encoded = (*tokenizer).encode(text, &options)?;
        let mut encoded = std::mem::ManuallyDrop::new(encoded);
        ids.write(Ids {
            data: encoded.as_mut_ptr(),
            size: encoded.len(),
            capacity: encoded.capacity(),
        });
        Ok(0)
    })
}

#[no_mangle]
pub unsafe extern "C" fn braid_text_tokenizer_memo(tokenizer: *const Tokenizer) -> MemoStats {
    (*tokenizer).memo_stats()
}

#[no_mangle]
pub unsafe extern "C" fn braid_text_tokenizer_token_id(
    tokenizer: *const Tokenizer,
    token: View,
) -> i32 {
    guard(std::ptr::null_mut(), -1, || {
        Ok((*tokenizer).token_id(token.text("the token")?).map_or(-1, |id| id as i32))
    })
}

#[no_mangle]
pub unsafe extern "C" fn braid_text_template_compile(
    source: View,
    error: *mut Buffer,
) -> *mut Template {
    guard(error, std::ptr::null_mut(), || {
        Ok(Box::into_raw(Box::new(Template::compile(source.text("the template")?)?)))
    })
}

#[no_mangle]
pub unsafe extern "C" fn braid_text_template_free(template: *mut Template) {
    free(template)
}

#[no_mangle]
pub unsafe extern "C" fn braid_text_template_render(
    template: *const Template,
    context: View,
    limits: Limits,
    output: *mut Buffer,
    error: *mut Buffer,
) -> i32 {
    guard(error, -1, || {
        let text = (*template).render(context.text("the template's context")?, limits)?;
        output.write(Buffer::of(text));
        Ok(0)
    })
}

#[no_mangle]
pub unsafe extern "C" fn braid_text_grammars_create(
    table: Table,
    end_id: u32,
    mask_items_max: u64,
    error: *mut Buffer,
) -> *mut Grammars {
    guard(error, std::ptr::null_mut(), || {
        let offsets = std::slice::from_raw_parts(table.offsets, table.token_count + 1);
        let words = Words {
            bytes: std::slice::from_raw_parts(table.bytes, offsets[table.token_count] as usize),
            offsets,
            special: std::slice::from_raw_parts(table.special, table.token_count),
        };
        Ok(Box::into_raw(Box::new(Grammars::new(&words, end_id, mask_items_max as usize)?)))
    })
}

#[no_mangle]
pub unsafe extern "C" fn braid_text_grammars_free(grammars: *mut Grammars) {
    free(grammars)
}

#[no_mangle]
pub unsafe extern "C" fn braid_text_matcher_create(
    grammars: *const Grammars,
    kind: View,
    source: View,
    error: *mut Buffer,
) -> *mut Matcher {
    guard(error, std::ptr::null_mut(), || {
        let matcher = (*grammars).compile(kind.text("the kind")?, source.text("the grammar")?)?;
        Ok(Box::into_raw(Box::new(matcher)))
    })
}

#[no_mangle]
pub unsafe extern "C" fn braid_text_matcher_copy(
    matcher: *const Matcher,
    error: *mut Buffer,
) -> *mut Matcher {
    guard(error, std::ptr::null_mut(), || Ok(Box::into_raw(Box::new((*matcher).copy()))))
}

#[no_mangle]
pub unsafe extern "C" fn braid_text_matcher_free(matcher: *mut Matcher) {
    free(matcher)
}

#[no_mangle]
pub unsafe extern "C" fn braid_text_matcher_mask(
    matcher: *mut Matcher,
    words: *mut u32,
    word_count: usize,
    error: *mut Buffer,
) -> i32 {
    guard(error, -1, || {
        let words = std::slice::from_raw_parts_mut(words, word_count);
        (*matcher).mask(words)?;
        Ok(0)
    })
}

#[no_mangle]
pub unsafe extern "C" fn braid_text_matcher_accept(
    matcher: *mut Matcher,
    id: u32,
    error: *mut Buffer,
) -> i32 {
    guard(error, -1, || {
        (*matcher).accept(id)?;
        Ok(0)
    })
}

#[no_mangle]
pub unsafe extern "C" fn braid_text_matcher_rewind(
    matcher: *mut Matcher,
    count: usize,
    error: *mut Buffer,
) -> i32 {
    guard(error, -1, || {
        (*matcher).rewind(count)?;
        Ok(0)
    })
}

#[no_mangle]
pub unsafe extern "C" fn braid_text_matcher_forced(
    matcher: *mut Matcher,
    tokens: *mut u32,
    token_count: usize,
    error: *mut Buffer,
) -> i32 {
    guard(error, -1, || {
        let tokens = std::slice::from_raw_parts_mut(tokens, token_count);
        Ok((*matcher).forced(tokens)? as i32)
    })
}

#[no_mangle]
pub unsafe extern "C" fn braid_text_matcher_complete(
    matcher: *mut Matcher,
    error: *mut Buffer,
) -> i32 {
    guard(error, -1, || Ok((*matcher).complete()?.into()))
}
