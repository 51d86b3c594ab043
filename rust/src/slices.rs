//! Encodes long texts in slices: the library needs some hundred bytes of working memory per byte
//! of text, and frees those of a slice before it encodes the next. The ids are those of the whole
//! text.
//!
//! That holds where words (into which the pre-tokenizer splits a text) depend only on the text from
//! their beginning on. Then a slice may begin where any word begins. The words of a slice are those
//! of the whole text except for the last few, which the cut may have changed: the next slice begins
//! with these.

use serde_json::Value;
use tokenizers::tokenizer::{
    Model, OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer, Tokenizer,
};

use crate::memo::{Memo, Slice};
use crate::tiktoken;

/// How many words at a slice's end are left to the next one, and how many bytes beside the longest
/// added token, which the cut may have split.
const LEFT_WORDS: usize = 4;
const LEFT_BYTES: usize = 16;

/// The bytes of the longest added token if texts of this tokenizer.json may be cut.
pub fn longest_added(file: &Value) -> Option<usize> {
    let plain_normalizer = file["normalizer"].is_null() || file["normalizer"]["type"] == "NFC";
    if !plain_normalizer || !is_memoryless(&file["pre_tokenizer"]) {
        return None;
    }
    let none = Vec::new();
    let mut longest = 0;
    for token in file["added_tokens"].as_array().unwrap_or(&none) {
        if ["lstrip", "rstrip", "single_word", "normalized"].iter().any(|flag| token[flag] == true)
        {
            return None;
        }
        longest = longest.max(token["content"].as_str().unwrap_or("").len());
    }
    Some(longest)
}

/// Patterns whose words depend only on the text from their beginning on, and where a cut changes at
/// most the last `LEFT_WORDS` words before it: each alternative takes whole runs of a class, and
/// the longest look ahead passes over one run of white space. Texts of other patterns are not cut.
const PATTERNS: [&str; 6] = [
    concat!(
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}",
        r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
    concat!(
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}",
        r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
    concat!(
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}",
        r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
    concat!(
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+",
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*",
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    tiktoken::PATTERN,
];

/// One known pattern that splits a text into all its words, and bytes as letters.
fn is_memoryless(pre_tokenizer: &Value) -> bool {
    let byte_level = |part: &Value, splits: bool| {
        part["type"] == "ByteLevel"
            && part["add_prefix_space"] == false
            && part["use_regex"] == splits
    };
    if byte_level(pre_tokenizer, true) {
        return true;
    }
    let none = Vec::new();
    let parts = pre_tokenizer["pretokenizers"].as_array().unwrap_or(&none);
    let [split, bytes] = parts.as_slice() else { return false };
    pre_tokenizer["type"] == "Sequence"
        && split["type"] == "Split"
        && split["behavior"] == "Isolated"
        && split["invert"] == false
        && split["pattern"]["Regex"].as_str().is_some_and(|regex| PATTERNS.contains(&regex))
        && byte_level(bytes, false)
}

/// True for characters that NFC never joins to what stands before them: ASCII, Cyrillic, kana,
/// ideographs, Hangul syllables and their punctuation.
fn begins_anew(letter: char) -> bool {
    matches!(letter, '\0'..='\x7f' | '\u{400}'..='\u{45f}' | '\u{3001}'..='\u{3002}'
        | '\u{3041}'..='\u{3096}' | '\u{30a1}'..='\u{30fa}' | '\u{4e00}'..='\u{9fff}'
        | '\u{ac00}'..='\u{d7a3}' | '\u{ff01}'..='\u{ff60}')
}

pub struct Slices<'a> {
    pub tokenizer: &'a Tokenizer,
    pub longest_added: usize,
    pub slice_bytes: usize,
    pub memo: &'a Memo,
    /// That the memo keeps.
    pub kept_bytes: usize,
    pub scope: &'a [u8],
}

impl Slices<'_> {
    pub fn encode(&self, text: &str, ids: &mut Vec<u32>) -> Result<(), String> {
        let (mut start, mut bytes) = (0, self.slice_bytes);
        while start < text.len() {
            let mut end = text.len().min(start + bytes);
            while !text.is_char_boundary(end) {
                end += 1;
            }
            let slice = &text[start..end];
            // The first slice of a text, and each behind a known one, is where it was before.
            let known = Slice { scope: self.scope, text: slice, last: end == text.len() };
            let used = match self.memo.find(&known, self.kept_bytes, ids) {
                Some(used) => used,
                None => {
                    let before = ids.len();
                    let used = self.encode_slice(&known, ids)?;
                    if bytes == self.slice_bytes {
                        self.memo.remember(&known, self.kept_bytes, &ids[before..], used);
                    }
                    used
                }
            };
            // Words that fill the slice need a longer one.
            bytes = if used < slice.len() / 2 { bytes * 2 } else { self.slice_bytes };
            start += used;
        }
        Ok(())
    }

    /// Appends the tokens of its certain words, and returns the bytes of these.
    fn encode_slice(&self, slice: &Slice, ids: &mut Vec<u32>) -> Result<usize, String> {
        let words = self.words(slice.text).map_err(|e| format!("cannot be encoded: {e}"))?;
        let words = words.get_splits(OffsetReferential::Original, OffsetType::Byte);
        let (kept, used) = if slice.last {
            (words.len(), slice.text.len())
        } else {
            self.certain(slice.text, &words)
        };
        for (_, _, tokens) in &words[..kept] {
            ids.extend(tokens.iter().flatten().map(|token| token.id));
        }
        Ok(used)
    }

    /// Does what `Tokenizer::encode` does, except for special tokens around the text.
    fn words(&self, slice: &str) -> tokenizers::Result<PreTokenizedString> {
        let added = self.tokenizer.get_added_vocabulary();
        let mut words = added.extract_and_normalize(self.tokenizer.get_normalizer(), slice);
        if let Some(splitter) = self.tokenizer.get_pre_tokenizer() {
            splitter.pre_tokenize(&mut words)?;
        }
        let model = self.tokenizer.get_model();
        words.tokenize(|word| model.tokenize(word.get()))?;
        Ok(words)
    }

    /// How many of a slice's words are the whole text's, and the bytes they take.
    fn certain<T>(&self, slice: &str, words: &[(&str, (usize, usize), T)]) -> (usize, usize) {
        let left = self.longest_added + LEFT_BYTES;
        for kept in (1..words.len().saturating_sub(LEFT_WORDS)).rev() {
            let (before, at) = (words[kept - 1].1 .1, words[kept].1 .0);
            let next = slice[at..].chars().next();
            if before == at && at + left <= slice.len() && next.is_some_and(begins_anew) {
                return (kept, at);
            }
        }
        (0, 0)
    }
}
