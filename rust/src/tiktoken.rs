//! A tokenizer stored as tiktoken.model: lines of a token in base64 and its rank. It becomes the
//! plain JSON of a tokenizer.json, which is then checked and loaded like any other.
//!
//! The file says neither how a text is split into words nor what the special tokens are. The former
//! is known by the class that tokenizer_config.json names, the latter stand there by id.

use std::collections::{BTreeMap, HashMap};

use serde_json::{json, Map, Value};

use crate::tokenizer::{byte_level_alphabet, FILE_BYTES_MAX, TOKEN_BYTES_MAX, VOCABULARY_MAX};

/// The one class whose splitting is known.
const CLASS: &str = "TikTokenTokenizer";
const SPECIAL_SLOTS: u64 = 256;
pub const PATTERN: &str = concat!(
    r"[\p{Han}]+",
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*",
    r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+",
    r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"|\p{N}{1,3}",
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*",
    r"|\s*[\r\n]+",
    r"|\s+(?!\S)",
    r"|\s+",
);

/// Before anything else the class cuts long texts, and long runs of blanks or of other characters.
const PIECE_CHARS_MAX: usize = 400_000;
const RUN_CHARS_MAX: usize = 25_000;

type Ranks = HashMap<Vec<u8>, u64>;

/// The content of a tokenizer.json that encodes as the class does.
pub fn to_json(model: &[u8], config: &[u8]) -> Result<Value, String> {
    let config: Value = serde_json::from_slice(config)
        .map_err(|e| format!("tokenizer_config.json: not valid JSON: {e}"))?;
    let class = config["tokenizer_class"].as_str().unwrap_or("missing");
    if class != CLASS {
        return Err(format!(
            "tokenizer_config.json: tokenizer_class is {class:?}; how it splits words is not \
             known, only of {CLASS:?} is it"
        ));
    }
    let ranks = read_ranks(model)?;
    let alphabet: HashMap<u8, char> =
        byte_level_alphabet().into_iter().map(|(letter, byte)| (byte, letter)).collect();
    let text = |bytes: &[u8]| bytes.iter().map(|byte| alphabet[byte]).collect::<String>();
    let vocabulary: Map<String, Value> =
        ranks.iter().map(|(token, rank)| (text(token), (*rank).into())).collect();
    let merges: Vec<Value> =
        merges(&ranks).iter().map(|(left, right)| json!([text(left), text(right)])).collect();
    Ok(json!({
        "version": "1.0", "truncation": null, "padding": null, "normalizer": null,
        "added_tokens": added_tokens(&config, ranks.len() as u64)?,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": PATTERN}, "behavior": "Isolated",
             "invert": false},
            {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true,
             "use_regex": false}]},
        "post_processor": null,
        "decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true,
                    "use_regex": false},
        "model": {"type": "BPE", "dropout": null, "unk_token": null,
                  "continuing_subword_prefix": null, "end_of_word_suffix": null,
                  "fuse_unk": false, "byte_fallback": false, "ignore_merges": true,
                  "vocab": vocabulary, "merges": merges},
    }))
}

/// Every token's rank. Ranks are ids: each from 0 on once, and every single byte has one.
fn read_ranks(model: &[u8]) -> Result<Ranks, String> {
    if model.len() > FILE_BYTES_MAX {
        return Err(format!("{} bytes, but at most {FILE_BYTES_MAX} are read", model.len()));
    }
    let text = std::str::from_utf8(model).map_err(|e| format!("not text: {e}"))?;
    let mut ranks = Ranks::new();
    for (i, line) in text.lines().enumerate().filter(|(_, line)| !line.is_empty()) {
        let line_error = |what: &str| format!("line {}: {what}", i + 1);
        let (token, rank) = line
            .split_once(' ')
            .ok_or_else(|| line_error("expected a token in base64, a blank and its rank"))?;
        let token = base64::decode(token).map_err(|e| line_error(&format!("not base64: {e}")))?;
        let rank: u64 = rank.parse().map_err(|_| line_error("the rank is not a number"))?;
        if token.is_empty() || token.len() > TOKEN_BYTES_MAX {
            let size = token.len();
            return Err(line_error(&format!(
                "a token of {size} bytes, not 1 to {TOKEN_BYTES_MAX}"
            )));
        }
        if ranks.insert(token, rank).is_some() {
            return Err(line_error("the token stands in the file before"));
        }
        if ranks.len() > VOCABULARY_MAX {
            return Err(format!("more than {VOCABULARY_MAX} tokens"));
        }
    }
    let mut seen = vec![false; ranks.len()];
    for rank in ranks.values() {
        match seen.get_mut(*rank as usize) {
            Some(seen) if !*seen => *seen = true,
            _ => {
                return Err(format!(
                    "rank {rank}: the {} tokens must have the ranks 0 to {}, each once",
                    ranks.len(),
                    ranks.len().wrapping_sub(1)
                ))
            }
        }
    }
    match (0..=255u8).find(|byte| !ranks.contains_key(&vec![*byte])) {
        Some(byte) => Err(format!("no token for the byte {byte:#04x}")),
        None => Ok(ranks),
    }
}

/// tiktoken joins the two neighbours whose concatenation has the lowest rank, however the token
/// came to be: so every way to cut a token into two is a merge, and the token's rank orders it.
fn merges(ranks: &Ranks) -> Vec<(&[u8], &[u8])> {
    let mut found = Vec::new();
    for (token, rank) in ranks {
        for cut in 1..token.len() {
            let (left, right) = token.split_at(cut);
            if let (Some(first), Some(second)) = (ranks.get(left), ranks.get(right)) {
                found.push(((*rank, *first, *second), (left, right)));
            }
        }
    }
    found.sort_unstable_by_key(|(order, _)| *order);
    found.into_iter().map(|(_, pair)| pair).collect()
}

/// The slots behind the vocabulary, named by the file or by their numbers.
fn added_tokens(config: &Value, base: u64) -> Result<Vec<Value>, String> {
    let none = Map::new();
    let named = match &config["added_tokens_decoder"] {
        Value::Null => &none,
        Value::Object(named) => named,
        _ => return Err("tokenizer_config.json: added_tokens_decoder is not an object".to_string()),
    };
    let mut slots: BTreeMap<u64, Value> = (base..base + SPECIAL_SLOTS)
        .map(|id| (id, added(id, &format!("<|reserved_token_{id}|>"), true)))
        .collect();
    for (id, entry) in named {
        let slot = id.parse().ok().and_then(|id: u64| slots.get_mut(&id).map(|slot| (id, slot)));
        let (id, slot) = slot.ok_or_else(|| {
            format!(
                "tokenizer_config.json: added_tokens_decoder names {id:?}, expected {base} to {}",
                base + SPECIAL_SLOTS - 1
            )
        })?;
        let content = entry["content"].as_str().ok_or_else(|| {
            format!("tokenizer_config.json: added_tokens_decoder: {id} has no content")
        })?;
        *slot = added(id, content, entry["special"].as_bool().unwrap_or(true));
    }
    Ok(slots.into_values().collect())
}

fn added(id: u64, content: &str, special: bool) -> Value {
    json!({"id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
           "normalized": false, "special": special})
}

/// The pieces that are encoded one after the other.
pub fn pieces(text: &str) -> Vec<&str> {
    let mut pieces = Vec::new();
    let (mut start, mut chars, mut run, mut blank) = (0, 0, 0, None);
    for (at, letter) in text.char_indices() {
        // What Python calls a space.
        let is_blank = letter.is_whitespace() || ('\x1c'..='\x1f').contains(&letter);
        if chars == PIECE_CHARS_MAX {
            (chars, run, blank) = (0, 0, None);
            pieces.push(&text[start..at]);
            start = at;
        }
        run = if blank == Some(is_blank) { run + 1 } else { 1 };
        blank = Some(is_blank);
        if run > RUN_CHARS_MAX {
            pieces.push(&text[start..at]);
            (start, run) = (at, 1);
        }
        chars += 1;
    }
    pieces.push(&text[start..]);
    pieces
}
