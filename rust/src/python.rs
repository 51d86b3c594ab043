//! Values printed as Python prints them: what `str(x)` and `repr(x)` give in a Jinja template.

use minijinja::value::ValueKind;
use minijinja::{Error, ErrorKind, Value};

const DEPTH_MAX: usize = 128;

/// `str(value)`: strings as they are, everything else as `repr`; undefined is empty, as Jinja has
/// it.
pub fn str(value: &Value) -> Result<String, Error> {
    match value.kind() {
        ValueKind::String => Ok(value.as_str().unwrap_or_default().to_string()),
        ValueKind::Undefined => Ok(String::new()),
        _ => {
            let mut out = String::new();
            repr(value, &mut out, 0)?;
            Ok(out)
        }
    }
}

fn repr(value: &Value, out: &mut String, depth: usize) -> Result<(), Error> {
    if depth > DEPTH_MAX {
        return Err(Error::new(
            ErrorKind::InvalidOperation,
            "a value is nested too deeply to be printed",
        ));
    }
    match value.kind() {
        ValueKind::Undefined => out.push_str("Undefined"),
        ValueKind::Number if !value.is_integer() => {
            out.push_str(&float(f64::try_from(value.clone())?, ["inf", "-inf", "nan"]));
        }
        ValueKind::String => repr_string(value.as_str().unwrap_or_default(), out),
        ValueKind::Seq | ValueKind::Iterable => {
            let (open, close) = if value.is_tuple() { ('(', ')') } else { ('[', ']') };
            out.push(open);
            let mut count = 0;
            for item in value.try_iter()? {
                if count > 0 {
                    out.push_str(", ");
                }
                repr(&item, out, depth + 1)?;
                count += 1;
            }
            if value.is_tuple() && count == 1 {
                out.push(',');
            }
            out.push(close);
        }
        ValueKind::Map => {
            out.push('{');
            for (i, key) in value.try_iter()?.enumerate() {
                if i > 0 {
                    out.push_str(", ");
                }
                repr(&key, out, depth + 1)?;
                out.push_str(": ");
                repr(&value.get_item(&key)?, out, depth + 1)?;
            }
            out.push('}');
        }
        _ => out.push_str(&value.to_string()),
    }
    Ok(())
}

fn repr_string(text: &str, out: &mut String) {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == quote => {
                out.push('\\');
                out.push(c);
            }
            c if c < ' ' || ('\u{7f}'..='\u{a0}').contains(&c) || c == '\u{ad}' => {
                out.push_str(&format!("\\x{:02x}", c as u32));
            }
            c => out.push(c),
        }
    }
    out.push(quote);
}

/// The shortest digits that read back as the same number, in Python's notation: 1e-05, 0.0001,
/// 1e+16. `words` are the names of infinity, minus infinity and not-a-number.
pub fn float(x: f64, words: [&str; 3]) -> String {
    if x.is_nan() {
        return words[2].into();
    }
    if x.is_infinite() {
        return words[usize::from(x < 0.0)].into();
    }
    let scientific = format!("{x:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..16).contains(&exponent) {
        let plain = x.to_string();
        return if plain.contains('.') { plain } else { plain + ".0" };
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.abs())
}
