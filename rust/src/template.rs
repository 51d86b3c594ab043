//! Chat templates: Jinja as transformers configures it (trim_blocks, lstrip_blocks, loop controls,
//! its own tojson, raise_exception, strftime_now), bounded in instructions, output, recursion and
//! time.
//!
//! An environment lives for one rendering: building and parsing cost about 0.1 ms.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use minijinja::machinery::{tokenize, Token};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{from_args, Kwargs, Rest, Serde, StringInput, ValueKind, ValueOrKwargs};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, Value};

use crate::{json, python};

const SOURCE_BYTES_MAX: usize = 1 << 20;
const TOKENS_MAX: usize = 100_000;
const TAG_TOKENS_MAX: usize = 2_000;
const ELIF_MAX: usize = 1_000;
const RECURSION_MAX: usize = 64;
const INDENT_MAX: usize = 64;
const NAME: &str = "chat_template";

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Limits {
    pub fuel: u64,
    pub output_bytes: u64,
    pub wall_ms: u64,
}

pub struct Template {
    source: String,
}

/// What one rendering has used and said, shared with the functions the template calls.
struct Watch {
    limits: Limits,
    deadline: Instant,
    printed: AtomicU64,
    raised: Mutex<Option<String>>,
}

impl Watch {
    fn new(limits: Limits) -> Watch {
        Watch {
            limits,
            deadline: Instant::now() + Duration::from_millis(limits.wall_ms),
            printed: AtomicU64::new(0),
            raised: Mutex::new(None),
        }
    }

    fn print(&self, bytes: usize) -> Result<(), Error> {
        let printed = self.printed.fetch_add(bytes as u64, Ordering::Relaxed) + bytes as u64;
        if printed > self.limits.output_bytes {
            return Err(failed(format!("the output exceeds {} bytes", self.limits.output_bytes)));
        }
        if Instant::now() > self.deadline {
            return Err(failed(format!("rendering takes longer than {} ms", self.limits.wall_ms)));
        }
        Ok(())
    }

    fn raise(&self, message: String) -> Error {
        if let Ok(mut raised) = self.raised.lock() {
            *raised = Some(message.clone());
        }
        failed(message)
    }
}

struct BoundedWriter {
    bytes: Vec<u8>,
    bytes_max: u64,
}

impl io::Write for BoundedWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if (self.bytes.len() + bytes.len()) as u64 > self.bytes_max {
            return Err(io::Error::other(format!("the output exceeds {} bytes", self.bytes_max)));
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Template {
    pub fn compile(source: &str) -> Result<Template, String> {
        if source.len() > SOURCE_BYTES_MAX {
            return Err(format!("{} bytes, but at most {SOURCE_BYTES_MAX} are read", source.len()));
        }
        let source = without_generation_tags(&with_line_feeds(source));
        check_size(&source)?;
        let watch = Arc::new(Watch::new(Limits { fuel: 0, output_bytes: 0, wall_ms: 0 }));
        environment(&watch)
            .and_then(|mut env| env.add_template(NAME, &source).map(|()| ()))
            .map_err(|e| describe(&e))?;
        Ok(Template { source })
    }

    pub fn render(&self, context: &str, limits: Limits) -> Result<String, String> {
        let context: serde_json::Value = serde_json::from_str(context)
            .map_err(|e| format!("the context is not valid JSON: {e}"))?;
        let watch = Arc::new(Watch::new(limits));
        let mut output = BoundedWriter { bytes: Vec::new(), bytes_max: limits.output_bytes };
        let result = environment(&watch).and_then(|mut env| {
            env.set_fuel(Some(limits.fuel));
            env.add_template(NAME, &self.source)?;
            env.get_template(NAME)?.render_captured_to(Serde(&context), &mut output)?;
            Ok(())
        });
        let raised = watch.raised.lock().ok().and_then(|mut raised| raised.take());
        match result {
            Ok(()) => String::from_utf8(output.bytes).map_err(|e| e.to_string()),
            Err(error) => Err(raised.unwrap_or_else(|| describe(&error))),
        }
    }
}

fn environment<'a>(watch: &Arc<Watch>) -> Result<Environment<'a>, Error> {
    let mut env = Environment::new();
    env.set_syntax(syntax()?);
    env.set_auto_escape_callback(|_| AutoEscape::None);
    env.set_recursion_limit(RECURSION_MAX);
    env.set_unknown_method_callback(python::call_method);
    let printing = watch.clone();
    env.set_formatter(move |out, _state, value| {
        if let Some(text) = value.as_str() {
            printing.print(text.len())?;
            return out.write_str(text).map_err(Error::from);
        }
        let text = python::str(value)?;
        printing.print(text.len())?;
        out.write_str(&text).map_err(Error::from)
    });
    // Their arguments are sizes to allocate, and no chat template needs them.
    for name in ["batch", "slice"] {
        env.remove_filter(name);
    }
    env.add_filter("indent", indent);
    env.add_filter("tojson", json::tojson);
    env.add_filter("string", |value: &Value| python::str(value));
    env.add_filter("trim", trim);
    env.add_filter("default", default);
    env.add_filter("d", default);
    env.add_test("sequence", |value: &Value| is_sized(value));
    env.add_test("iterable", |value: &Value| {
        is_sized(value) || value.kind() == ValueKind::Iterable
    });
    let raising = watch.clone();
    env.add_function("raise_exception", move |message: &Value| -> Result<Value, Error> {
        Err(raising.raise(python::str(message)?))
    });
    env.add_function("strftime_now", |format: &str| strftime_now(format));
    Ok(env)
}

fn syntax() -> Result<SyntaxConfig, Error> {
    SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()
}

/// The parser recurses for operators and `elif` without a guard of its own, as deep as their
/// number.
fn check_size(source: &str) -> Result<(), String> {
    let syntax = syntax().map_err(|e| describe(&e))?;
    let (mut tokens, mut tag_tokens, mut elifs) = (0, 0, 0);
    for item in tokenize(source, false, syntax) {
        let (token, span) = item.map_err(|e| describe(&e))?;
        tokens += 1;
        tag_tokens += 1;
        match token {
            Token::TemplateData(_) | Token::VariableStart | Token::BlockStart => tag_tokens = 0,
            Token::Ident("elif") => elifs += 1,
            _ => {}
        }
        if tag_tokens > TAG_TOKENS_MAX || tokens > TOKENS_MAX || elifs > ELIF_MAX {
            return Err(format!(
                "too large: more than {TAG_TOKENS_MAX} tokens in a tag, {ELIF_MAX} elif or \
                 {TOKENS_MAX} tokens in all (in {NAME}:{})",
                span.start_line
            ));
        }
    }
    Ok(())
}

/// What Python can take len() of; Jinja's undefined is an empty sequence.
fn is_sized(value: &Value) -> bool {
    matches!(
        value.kind(),
        ValueKind::String | ValueKind::Seq | ValueKind::Map | ValueKind::Undefined
    )
}

/// The built-in filter, whose arguments may be named as in Jinja.
fn default(value: Value, args: Rest<ValueOrKwargs>) -> Result<Value, Error> {
    let args = args.into_values();
    let (args, options): (&[Value], Kwargs) = from_args(&args)?;
    let argument = |index: usize, name: &str| match args.get(index) {
        None if options.has(name) => options.get::<Value>(name).map(Some),
        given => Ok(given.cloned()), // none and undefined too
    };
    let (other, boolean) = (argument(0, "default_value")?, argument(1, "boolean")?);
    options.assert_all_used()?;
    if args.len() > 2 {
        return Err(ErrorKind::TooManyArguments.into());
    }
    let empty = boolean.is_some_and(|it| it.is_true()) && !value.is_true();
    Ok(if value.is_undefined() || empty { other.unwrap_or_else(|| "".into()) } else { value })
}

fn trim(value: &Value, chars: Option<&str>) -> Result<String, Error> {
    let text = python::str(value)?;
    Ok(match chars {
        Some(chars) => text.trim_matches(|c| chars.contains(c)).into(),
        None => text.trim_matches(python::is_blank).into(),
    })
}

/// The built-in filter, for widths that make sense.
fn indent(
    value: StringInput<'_>,
    width: Option<usize>,
    first: Option<bool>,
    blank: Option<bool>,
    options: Kwargs,
) -> Result<Value, Error> {
    if width.or(options.get("width")?) > Some(INDENT_MAX) {
        return Err(failed(format!("indent: the width exceeds {INDENT_MAX}")));
    }
    minijinja::filters::indent(value, width, first, blank, options)
}

fn strftime_now(format: &str) -> Result<String, Error> {
    let format = std::ffi::CString::new(format).map_err(|_| failed("strftime_now: zero byte"))?;
    let mut text = [0u8; 256];
    let size = unsafe {
        let now = libc::time(std::ptr::null_mut());
        let mut parts: libc::tm = std::mem::zeroed();
        if libc::localtime_r(&now, &mut parts).is_null() {
            return Err(failed("strftime_now: no local time"));
        }
        libc::strftime(text.as_mut_ptr().cast(), text.len(), format.as_ptr(), &parts)
    };
    Ok(String::from_utf8_lossy(&text[..size]).into_owned())
}

/// Jinja ends every line with a line feed, however the file does.
fn with_line_feeds(source: &str) -> String {
    source.replace("\r\n", "\n").replace('\r', "\n")
}

/// `{% generation %}` marks the model's own text for training; here it is a block without effect.
fn without_generation_tags(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(start) = rest.find("{%") {
        let Some(end) = rest[start + 2..].find("%}").map(|end| start + 2 + end) else { break };
        out.push_str(&rest[..start]);
        let tag = &rest[start + 2..end];
        let word = tag.trim_start_matches(['-', '+']).trim_end_matches(['-', '+']).trim();
        match word {
            "generation" => out.push_str(&format!("{{%{}", tag.replace(word, "if true"))),
            "endgeneration" => out.push_str(&format!("{{%{}", tag.replace(word, "endif"))),
            _ => {
                // Go on right after "{%": a string inside the tag may hold another one.
                out.push_str("{%");
                rest = &rest[start + 2..];
                continue;
            }
        }
        rest = &rest[end..];
    }
    out.push_str(rest);
    out
}

fn describe(error: &Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text += &format!(": {cause}");
        source = cause.source();
    }
    text
}

fn failed(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, message.into())
}
