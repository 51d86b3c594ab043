//! One tokenizer.json: validated, then loaded, then flattened to a table of bytes per token.
//!
//! The file is hostile until checked. The library's own loader trusts more than it should, so
//! limits, duplicate ids and merges are looked at first, on the plain JSON.

use std::collections::HashMap;
use std::str::FromStr;

use serde_json::Value;
use tokenizers::tokenizer::PostProcessor as _;

use crate::memo::{Memo, MemoStats};
use crate::slices::{Cuts, Slices};
use crate::tiktoken;

pub const FILE_BYTES_MAX: usize = 64 << 20;
pub const VOCABULARY_MAX: usize = 1 << 20;
const MERGES_MAX: usize = 1 << 22;
const ADDED_MAX: usize = 65_536;
pub const TOKEN_BYTES_MAX: usize = 1_024;

pub struct Table {
    pub bytes: Vec<u8>,
    pub offsets: Vec<u32>,
    pub special: Vec<u8>,
    pub strips_leading_space: bool,
}

pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    pub table: Table,
    cuts_long_texts: bool,
    /// Where texts may be encoded in slices.
    cuts: Option<Cuts>,
    memo: Memo,
}

/// How a text is encoded.
pub struct Options<'a> {
    pub add_special_tokens: bool,
    /// Longer texts are encoded in slices where that is exact; 0: never.
    pub slice_bytes: usize,
    /// Of slices that are remembered with their tokens, and are looked up among those of the scope.
    pub kept_bytes: usize,
    pub scope: &'a [u8],
}

/// How a token's text in the file becomes bytes.
struct Decoding {
    byte_level: Option<HashMap<char, u8>>,
    byte_fallback: bool,
    replacements: Vec<(String, String)>,
    strips_leading_space: bool,
}

impl Tokenizer {
    pub fn load(json: &[u8]) -> Result<Tokenizer, String> {
        if json.len() > FILE_BYTES_MAX {
            return Err(format!("{} bytes, but at most {FILE_BYTES_MAX} are read", json.len()));
        }
        let file: Value =
            serde_json::from_slice(json).map_err(|e| format!("not valid JSON: {e}"))?;
        let text = std::str::from_utf8(json).map_err(|e| format!("refused: {e}"))?;
        Tokenizer::of(&file, text, false)
    }

    /// The content of tiktoken.model and of the tokenizer_config.json beside it.
    pub fn load_tiktoken(model: &[u8], config: &[u8]) -> Result<Tokenizer, String> {
        let file = tiktoken::to_json(model, config)?;
        let text = serde_json::to_string(&file).map_err(|e| e.to_string())?;
        Tokenizer::of(&file, &text, true)
    }

    /// `text` is `file` as JSON.
    fn of(file: &Value, text: &str, cuts_long_texts: bool) -> Result<Tokenizer, String> {
        let size = check_model(file)?;
        let decoding = Decoding::of(&file["decoder"])?;
        let mut inner =
            tokenizers::Tokenizer::from_str(text).map_err(|e| format!("refused: {e}"))?;
        inner.with_padding(None);
        inner.with_truncation(None).map_err(|e| e.to_string())?;
        check_added(file, &inner)?;
        let table = Table::new(size, &inner, &decoding)?;
        let cuts = Cuts::of(file);
        let memo = Memo::default();
        Ok(Tokenizer { inner, table, cuts_long_texts, cuts, memo })
    }

    pub fn encode(&self, text: &str, options: &Options) -> Result<Vec<u32>, String> {
        let Options { add_special_tokens, slice_bytes, kept_bytes, scope } = *options;
        let pieces = if self.cuts_long_texts { tiktoken::pieces(text) } else { vec![text] };
        let surrounds = add_special_tokens && self.adds_tokens();
        let slices =
            self.cuts.as_ref().filter(|_| slice_bytes > 0 && !surrounds).map(|cuts| Slices {
                tokenizer: &self.inner,
                cuts,
                slice_bytes,
                memo: &self.memo,
                kept_bytes,
                scope,
            });
        let mut ids = Vec::new();
        for piece in pieces {
            match &slices {
                Some(slices) => slices.encode(piece, &mut ids)?,
                None => {
                    let encoding = self
                        .inner
                        .encode_fast(piece, add_special_tokens)
                        .map_err(|e| format!("cannot be encoded: {e}"))?;
                    ids.extend_from_slice(encoding.get_ids());
                }
            }
        }
        Ok(ids)
    }

    pub fn memo_stats(&self) -> MemoStats {
        self.memo.stats()
    }

    fn adds_tokens(&self) -> bool {
        self.inner.get_post_processor().is_some_and(|p| p.added_tokens(false) > 0)
    }

    pub fn token_id(&self, token: &str) -> Option<u32> {
        self.inner.token_to_id(token)
    }
}

/// Checks limits, ids and merges of a BPE model; returns the highest id + 1.
fn check_model(file: &Value) -> Result<usize, String> {
    let model = &file["model"];
    match model["type"].as_str() {
        Some("BPE") => {}
        other => return Err(format!("model.type is {}, expected \"BPE\"", quoted(other))),
    }
    let vocabulary = model["vocab"].as_object().ok_or("model.vocab is not an object")?;
    if vocabulary.is_empty() || vocabulary.len() > VOCABULARY_MAX {
        return Err(format!(
            "model.vocab has {} tokens, expected 1 to {VOCABULARY_MAX}",
            vocabulary.len()
        ));
    }
    let mut by_id: HashMap<u64, &str> = HashMap::with_capacity(vocabulary.len());
    for (token, id) in vocabulary {
        insert_token(&mut by_id, token, id, "model.vocab")?;
    }
    let none = Vec::new();
    let added = match &file["added_tokens"] {
        Value::Null => &none,
        Value::Array(added) => added,
        _ => return Err("added_tokens is not an array".into()),
    };
    if added.len() > ADDED_MAX {
        return Err(format!(
            "added_tokens has {} entries, at most {ADDED_MAX} are read",
            added.len()
        ));
    }
    for token in added {
        let content = token["content"].as_str().ok_or("added_tokens: content is not a string")?;
        if content.is_empty() {
            return Err("added_tokens: content is empty".into());
        }
        insert_token(&mut by_id, content, &token["id"], "added_tokens")?;
    }
    check_merges(model, vocabulary)?;
    Ok(by_id.keys().max().map_or(0, |id| *id as usize + 1))
}

fn insert_token<'a>(
    by_id: &mut HashMap<u64, &'a str>,
    token: &'a str,
    id: &Value,
    place: &str,
) -> Result<(), String> {
    if token.len() > TOKEN_BYTES_MAX {
        let excerpt: String = token.chars().take(40).collect();
        return Err(format!(
            "{place}: token {excerpt:?}… has {} bytes, at most {TOKEN_BYTES_MAX}",
            token.len()
        ));
    }
    let limit = (VOCABULARY_MAX + ADDED_MAX) as u64;
    let id = id.as_u64().filter(|id| *id < limit).ok_or_else(|| {
        format!("{place}: token {token:?} has id {id}, expected 0 to {}", limit - 1)
    })?;
    match by_id.insert(id, token) {
        Some(other) if other != token => {
            Err(format!("{place}: tokens {other:?} and {token:?} share id {id}"))
        }
        _ => Ok(()),
    }
}

/// The library numbers added tokens itself, one after the other; the file must agree.
fn check_added(file: &Value, inner: &tokenizers::Tokenizer) -> Result<(), String> {
    for token in file["added_tokens"].as_array().into_iter().flatten() {
        let content = token["content"].as_str().unwrap_or_default();
        let id = inner.token_to_id(content);
        if id.map(u64::from) != token["id"].as_u64() {
            return Err(format!(
                "added_tokens: {content:?} has id {}, expected {}: \
                 new tokens follow the vocabulary without gaps",
                token["id"],
                id.map_or("none".into(), |id| id.to_string())
            ));
        }
    }
    Ok(())
}

fn check_merges(model: &Value, vocabulary: &serde_json::Map<String, Value>) -> Result<(), String> {
    let merges = model["merges"].as_array().ok_or("model.merges is not an array")?;
    if merges.len() > MERGES_MAX {
        return Err(format!(
            "model.merges has {} entries, at most {MERGES_MAX} are read",
            merges.len()
        ));
    }
    let prefix = model["continuing_subword_prefix"].as_str().unwrap_or("");
    for (i, merge) in merges.iter().enumerate() {
        let (left, right) = match merge {
            Value::String(text) => text.split_once(' '),
            Value::Array(pair) if pair.len() == 2 => pair[0].as_str().zip(pair[1].as_str()),
            _ => None,
        }
        .ok_or_else(|| format!("model.merges[{i}] is not a pair of tokens"))?;
        let merged = format!("{left}{}", right.strip_prefix(prefix).unwrap_or(right));
        for part in [left, right, merged.as_str()] {
            if !vocabulary.contains_key(part) {
                return Err(format!(
                    "model.merges[{i}] names {part:?}, which is not in model.vocab"
                ));
            }
        }
    }
    Ok(())
}

impl Decoding {
    /// Only decoders that concatenate bytes are accepted, so that streaming is exact.
    fn of(decoder: &Value) -> Result<Decoding, String> {
        let mut decoding = Decoding {
            byte_level: None,
            byte_fallback: false,
            replacements: Vec::new(),
            strips_leading_space: false,
        };
        let steps = match decoder["type"].as_str() {
            Some("Sequence") => decoder["decoders"].as_array().cloned().unwrap_or_default(),
            _ => vec![decoder.clone()],
        };
        for step in &steps {
            match step["type"].as_str() {
                Some("ByteLevel") => decoding.byte_level = Some(byte_level_alphabet()),
                Some("ByteFallback") => decoding.byte_fallback = true,
                Some("Fuse") => {}
                Some("Replace") => {
                    match (step["pattern"]["String"].as_str(), step["content"].as_str()) {
                        (Some(from), Some(to)) => {
                            decoding.replacements.push((from.into(), to.into()))
                        }
                        _ => {
                            return Err(
                                "decoder: a Replace step needs a pattern of kind String".into()
                            )
                        }
                    }
                }
                Some("Strip")
                    if step["content"] == " " && step["start"] == 1 && step["stop"] == 0 =>
                {
                    decoding.strips_leading_space = true;
                }
                other => {
                    return Err(format!(
                        "decoder: step {} is not supported; expected ByteLevel, or a sequence of \
                         Replace, ByteFallback, Fuse and Strip(\" \", 1, 0)",
                        quoted(other)
                    ))
                }
            }
        }
        if decoding.byte_level.is_none() && !decoding.byte_fallback {
            return Err("decoder: expected ByteLevel or ByteFallback".into());
        }
        Ok(decoding)
    }

    fn bytes(&self, token: &str) -> Vec<u8> {
        if let Some(alphabet) = &self.byte_level {
            let bytes: Option<Vec<u8>> = token.chars().map(|c| alphabet.get(&c).copied()).collect();
            return bytes.unwrap_or_else(|| token.as_bytes().to_vec());
        }
        let hex = token.strip_prefix("<0x").and_then(|rest| rest.strip_suffix('>'));
        if let Some(byte) =
            hex.filter(|hex| hex.len() == 2).and_then(|hex| u8::from_str_radix(hex, 16).ok())
        {
            return vec![byte];
        }
        let mut text = token.to_string();
        for (from, to) in &self.replacements {
            text = text.replace(from.as_str(), to);
        }
        text.into_bytes()
    }
}

impl Table {
    fn new(
        size: usize,
        inner: &tokenizers::Tokenizer,
        decoding: &Decoding,
    ) -> Result<Table, String> {
        let mut table = Table {
            bytes: Vec::new(),
            offsets: vec![0],
            special: vec![0; size],
            strips_leading_space: decoding.strips_leading_space,
        };
        for id in 0..size {
            if let Some(token) = inner.id_to_token(id as u32) {
                table.bytes.extend(decoding.bytes(&token));
            }
            table
                .offsets
                .push(u32::try_from(table.bytes.len()).map_err(|_| "tokens exceed 4 GiB")?);
        }
        for (id, token) in inner.get_added_tokens_decoder() {
            if let Some(special) = table.special.get_mut(id as usize) {
                *special = token.special.into();
            }
        }
        Ok(table)
    }
}

/// GPT-2's alphabet: printable bytes stand for themselves, the others for the characters from
/// U+0100.
pub fn byte_level_alphabet() -> HashMap<char, u8> {
    let mut next = 0x100u32;
    (0..=255u8)
        .map(|byte| {
            let printable = matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
            let code = if printable { u32::from(byte) } else { next };
            next += u32::from(!printable);
            (char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER), byte)
        })
        .collect()
}

fn quoted(name: Option<&str>) -> String {
    name.map_or("missing".into(), |name| format!("{name:?}"))
}
