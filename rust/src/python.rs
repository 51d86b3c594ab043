//! Values printed as Python prints them, what `str(x)` and `repr(x)` give in a Jinja template, and
//! Python's methods of strings.

use minijinja::value::{from_args, Kwargs, ValueKind};
use minijinja::{Error, ErrorKind, State, Value};
use minijinja_contrib::pycompat::unknown_method_callback;

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

/// What `strip()` removes: four control characters more than Unicode's white space.
pub fn is_blank(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

/// The methods of strings that minijinja lacks or that differ there; the others are minijinja's.
pub fn call_method(
    state: &mut State,
    value: &Value,
    name: &str,
    args: &[Value],
) -> Result<Value, Error> {
    let Some(text) = value.as_str() else {
        return unknown_method_callback(state, value, name, args);
    };
    match name {
        "strip" | "lstrip" | "rstrip" if args.iter().all(Value::is_none) => {
            Ok(Value::from(match name {
                "strip" => text.trim_matches(is_blank),
                "lstrip" => text.trim_start_matches(is_blank),
                _ => text.trim_end_matches(is_blank),
            }))
        }
        "split" | "rsplit" => {
            let (separator, limit, options): (Option<&str>, Option<i64>, Kwargs) = from_args(args)?;
            let separator = separator.or(options.get("sep")?);
            let limit = limit.or(options.get("maxsplit")?);
            options.assert_all_used()?;
            let limit = limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX);
            Ok(list(split(text, separator, limit, name == "rsplit")?))
        }
        "replace" => {
            let (old, new, count): (&str, &str, Option<i64>) = from_args(args)?;
            let count = count.and_then(|count| usize::try_from(count).ok()).unwrap_or(usize::MAX);
            // What it may create is paid for first, as the engine pays: 64 bytes each.
            let created = text.matches(old).take(count).count().saturating_mul(new.len());
            state.consume_fuel((created / 64) as u64)?;
            Ok(Value::from(text.replacen(old, new, count)))
        }
        "removeprefix" => {
            let (prefix,): (&str,) = from_args(args)?;
            Ok(Value::from(text.strip_prefix(prefix).unwrap_or(text)))
        }
        "removesuffix" => {
            let (suffix,): (&str,) = from_args(args)?;
            Ok(Value::from(text.strip_suffix(suffix).unwrap_or(text)))
        }
        "partition" => {
            let (separator,): (&str,) = from_args(args)?;
            let (before, after) = text.split_once(separator).unwrap_or((text, ""));
            let found = if text.contains(separator) { separator } else { "" };
            Ok(list(vec![before, found, after]))
        }
        "rpartition" => {
            let (separator,): (&str,) = from_args(args)?;
            let (before, after) = text.rsplit_once(separator).unwrap_or(("", text));
            let found = if text.contains(separator) { separator } else { "" };
            Ok(list(vec![before, found, after]))
        }
        _ => unknown_method_callback(state, value, name, args),
    }
}

fn list(parts: Vec<&str>) -> Value {
    parts.into_iter().map(Value::from).collect()
}

/// At most `limit` cuts, counted from the end with `from_end`; no separator: at runs of blanks.
fn split<'a>(
    text: &'a str,
    separator: Option<&str>,
    limit: usize,
    from_end: bool,
) -> Result<Vec<&'a str>, Error> {
    let parts_max = limit.saturating_add(1);
    match separator {
        Some("") => Err(Error::new(ErrorKind::InvalidOperation, "split: the separator is empty")),
        Some(separator) if from_end => {
            let mut parts: Vec<&str> = text.rsplitn(parts_max, separator).collect();
            parts.reverse();
            Ok(parts)
        }
        Some(separator) => Ok(text.splitn(parts_max, separator).collect()),
        None if from_end && limit < usize::MAX => {
            Err(Error::new(ErrorKind::InvalidOperation, "rsplit: a limit needs a separator"))
        }
        None => {
            let mut parts = Vec::new();
            let mut rest = text.trim_start_matches(is_blank);
            while !rest.is_empty() {
                let end = if parts.len() < limit { rest.find(is_blank) } else { None };
                let (part, after) = rest.split_at(end.unwrap_or(rest.len()));
                parts.push(part);
                rest = after.trim_start_matches(is_blank);
            }
            Ok(parts)
        }
    }
}
