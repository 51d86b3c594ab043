//! `tojson` as transformers defines it: Python's json.dumps with ensure_ascii off, `< > & '` left
//! alone.

use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Error, ErrorKind, Value};

use crate::python;

const DEPTH_MAX: usize = 128;

struct Style {
    indent: Option<String>,
    item_separator: String,
    key_separator: String,
    ensure_ascii: bool,
    sort_keys: bool,
}

/// tojson(value, ensure_ascii=false, indent=none, separators=none, sort_keys=false)
pub fn tojson(
    value: &Value,
    ensure_ascii: Option<bool>,
    indent: Option<Value>,
    options: Kwargs,
) -> Result<Value, Error> {
    let ensure_ascii = ensure_ascii.or(options.get("ensure_ascii")?).unwrap_or(false);
    let indent: Option<Value> = indent.or(options.get("indent")?);
    let separators: Option<Value> = options.get("separators")?;
    let sort_keys: Option<bool> = options.get("sort_keys")?;
    options.assert_all_used()?;
    let indent = match indent.filter(|indent| !indent.is_none()) {
        None => None,
        Some(indent) if indent.as_str().is_some() => indent.as_str().map(str::to_string),
        Some(indent) => Some(" ".repeat(i64::try_from(indent)?.clamp(0, 64) as usize)),
    };
    let mut style = Style {
        item_separator: if indent.is_some() { "," } else { ", " }.into(),
        key_separator: ": ".into(),
        indent,
        ensure_ascii,
        sort_keys: sort_keys.unwrap_or(false),
    };
    if let Some(pair) = separators.filter(|pair| !pair.is_none()) {
        style.item_separator = python::str(&pair.get_item(&Value::from(0))?)?;
        style.key_separator = python::str(&pair.get_item(&Value::from(1))?)?;
    }
    let mut out = String::new();
    style.write(value, &mut out, 0)?;
    Ok(Value::from_safe_string(out))
}

impl Style {
    fn write(&self, value: &Value, out: &mut String, depth: usize) -> Result<(), Error> {
        if depth > DEPTH_MAX {
            return Err(failed("a value is nested too deeply for tojson"));
        }
        match value.kind() {
            ValueKind::None => out.push_str("null"),
            ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number if value.is_integer() => out.push_str(&value.to_string()),
            ValueKind::Number => {
                let x = f64::try_from(value.clone())?;
                out.push_str(&python::float(x, ["Infinity", "-Infinity", "NaN"]));
            }
            ValueKind::String => self.write_string(value.as_str().unwrap_or_default(), out),
            ValueKind::Seq | ValueKind::Iterable => {
                let items: Vec<Value> = value.try_iter()?.collect();
                self.write_items(('[', ']'), &items, out, depth, |style, item, out| {
                    style.write(item, out, depth + 1)
                })?;
            }
            ValueKind::Map => {
                let mut keys: Vec<Value> = value.try_iter()?.collect();
                if self.sort_keys {
                    keys.sort_by_key(|key| key.to_string());
                }
                self.write_items(('{', '}'), &keys, out, depth, |style, key, out| {
                    style.write_string(&python::str(key)?, out);
                    out.push_str(&style.key_separator);
                    style.write(&value.get_item(key)?, out, depth + 1)
                })?;
            }
            kind => {
                return Err(failed(&format!("a value of type {kind} cannot be written as JSON")))
            }
        }
        Ok(())
    }

    fn write_items(
        &self,
        brackets: (char, char),
        items: &[Value],
        out: &mut String,
        depth: usize,
        mut write_item: impl FnMut(&Style, &Value, &mut String) -> Result<(), Error>,
    ) -> Result<(), Error> {
        out.push(brackets.0);
        for (i, item) in items.iter().enumerate() {
            if i > 0 {
                out.push_str(&self.item_separator);
            }
            self.break_line(out, depth + 1);
            write_item(self, item, out)?;
        }
        if !items.is_empty() {
            self.break_line(out, depth);
        }
        out.push(brackets.1);
        Ok(())
    }

    fn break_line(&self, out: &mut String, depth: usize) {
        if let Some(indent) = &self.indent {
            out.push('\n');
            out.push_str(&indent.repeat(depth));
        }
    }

    fn write_string(&self, text: &str, out: &mut String) {
        out.push('"');
        for c in text.chars() {
            match c {
                '"' => out.push_str("\\\""),
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                '\u{8}' => out.push_str("\\b"),
                '\u{c}' => out.push_str("\\f"),
                c if c < ' ' || (self.ensure_ascii && c > '~') => {
                    let mut units = [0u16; 2];
                    for unit in c.encode_utf16(&mut units) {
                        out.push_str(&format!("\\u{unit:04x}"));
                    }
                }
                c => out.push(c),
            }
        }
        out.push('"');
    }
}

fn failed(message: &str) -> Error {
    Error::new(ErrorKind::InvalidOperation, message.to_string())
}
