//! Encodes texts word by word, long ones in slices. The library's own way keeps for each byte where
//! it came from, which takes some hundred bytes of memory per byte of text and most of the time;
//! here it splits, normalizes and encodes, and nothing is kept but ids. Slices can be remembered
//! (memo.rs). The ids are those of the whole text.
//!
//! Slices are possible where words (into which the pre-tokenizer splits a text) depend only on the
//! text from their beginning on. Then a slice may begin where any word begins. The words of a slice
//! are those of the whole text except for the last few, which the cut may have changed: the next
//! slice begins with these.

use std::collections::HashMap;

use serde_json::Value;
use tokenizers::tokenizer::pattern::Pattern;
use tokenizers::tokenizer::{Model, OffsetReferential, OffsetType, PreTokenizer, Tokenizer};
use tokenizers::utils::SysRegex;

use crate::memo::{Memo, Slice};
use crate::tiktoken;
use crate::tokenizer::byte_level_alphabet;

/// How many words at a slice's end are left to the next one, and how many bytes beside the longest
/// added token, which the cut may have split.
const LEFT_WORDS: usize = 4;
const LEFT_BYTES: usize = 16;
/// How many words of a text are encoded once, and the bytes of the longest.
const KNOWN_WORDS: usize = 1 << 14;
const KNOWN_BYTES: usize = 64;
/// The library's own splitting gives up silently at about a million blanks in a row.
const BLANKS_MAX: usize = 900_000;

/// How texts of a tokenizer.json are cut.
pub struct Cuts {
    longest_added: usize,
    splitter: SysRegex,
    letters: Vec<char>, // of each byte
}

impl Cuts {
    /// None if they may not be cut.
    pub fn of(file: &Value) -> Option<Cuts> {
        let plain_normalizer = file["normalizer"].is_null() || file["normalizer"]["type"] == "NFC";
        let pattern = known_pattern(&file["pre_tokenizer"]).filter(|_| plain_normalizer)?;
        let none = Vec::new();
        let mut longest_added = 0;
        for token in file["added_tokens"].as_array().unwrap_or(&none) {
            let flags = ["lstrip", "rstrip", "single_word", "normalized"];
            if flags.iter().any(|flag| token[flag] == true) {
                return None;
            }
            longest_added = longest_added.max(token["content"].as_str().unwrap_or("").len());
        }
        let mut letters = vec!['\0'; 256];
        for (letter, byte) in byte_level_alphabet() {
            letters[usize::from(byte)] = letter;
        }
        Some(Cuts { longest_added, splitter: SysRegex::new(pattern).ok()?, letters })
    }
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
    OF_BYTE_LEVEL,
    tiktoken::PATTERN,
];
const OF_BYTE_LEVEL: &str =
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";

/// The one known pattern that splits a text into all its words, if bytes then become letters.
fn known_pattern(pre_tokenizer: &Value) -> Option<&'static str> {
    let byte_level = |part: &Value, splits: bool| {
        part["type"] == "ByteLevel"
            && part["add_prefix_space"] == false
            && part["use_regex"] == splits
    };
    if byte_level(pre_tokenizer, true) {
        return Some(OF_BYTE_LEVEL);
    }
    let none = Vec::new();
    let parts = pre_tokenizer["pretokenizers"].as_array().unwrap_or(&none);
    let [split, bytes] = parts.as_slice() else { return None };
    let isolates = pre_tokenizer["type"] == "Sequence"
        && split["type"] == "Split"
        && split["behavior"] == "Isolated"
        && split["invert"] == false
        && byte_level(bytes, false);
    let regex = split["pattern"]["Regex"].as_str().filter(|_| isolates)?;
    PATTERNS.into_iter().find(|known| *known == regex)
}

/// True for characters that NFC never joins to what stands before them: ASCII, Cyrillic, kana,
/// ideographs, Hangul syllables and their punctuation.
fn begins_anew(letter: char) -> bool {
    matches!(letter, '\0'..='\x7f' | '\u{400}'..='\u{45f}' | '\u{3001}'..='\u{3002}'
        | '\u{3041}'..='\u{3096}' | '\u{30a1}'..='\u{30fa}' | '\u{4e00}'..='\u{9fff}'
        | '\u{ac00}'..='\u{d7a3}' | '\u{ff01}'..='\u{ff60}')
}

/// The bytes of the word with which `text` begins, where the splitter gave up: at `\s+(?!\S)` in a
/// run of about a million characters of white space, for which it keeps too many states. The known
/// patterns match all text, and everything else in constant space.
fn blank_word(text: &str) -> Result<usize, String> {
    let run = text.len() - text.trim_start().len();
    let last = text[..run].chars().next_back().map_or(0, char::len_utf8);
    let word = if run == text.len() { run } else { run - last };
    if word == 0 {
        return Err("the text cannot be split into words".into());
    }
    Ok(word)
}

/// Words of a slice: where each lies, in bytes, and how many ids there are up to its end.
#[derive(Default)]
struct Words {
    ends: Vec<(usize, usize, usize)>,
    ids: Vec<u32>,
}

impl Words {
    fn end(&mut self, begin: usize, end: usize) {
        self.ends.push((begin, end, self.ids.len()));
    }
}

/// Ids of words that the text had before.
type Known = HashMap<String, Vec<u32>>;

pub struct Slices<'a> {
    pub tokenizer: &'a Tokenizer,
    pub cuts: &'a Cuts,
    pub slice_bytes: usize,
    pub memo: &'a Memo,
    /// That the memo keeps.
    pub kept_bytes: usize,
    pub scope: &'a [u8],
}

impl Slices<'_> {
    pub fn encode(&self, text: &str, ids: &mut Vec<u32>) -> Result<(), String> {
        let mut known = Known::new();
        let (mut start, mut bytes) = (0, self.slice_bytes);
        while start < text.len() {
            let mut end = text.len().min(start + bytes);
            while !text.is_char_boundary(end) {
                end += 1;
            }
            // The first slice of a text, and each behind one that it had before, is where it was.
            let last = end == text.len();
            let slice = Slice { scope: self.scope, text: &text[start..end], last };
            let is_kept = text.len() > self.slice_bytes && bytes == self.slice_bytes;
            let found = is_kept.then(|| self.memo.find(&slice, self.kept_bytes, ids)).flatten();
            let used = match found {
                Some(used) => used,
                None => {
                    let before = ids.len();
                    let used = self
                        .encode_slice(&slice, &mut known, ids)
                        .map_err(|e| format!("cannot be encoded: {e}"))?;
                    if is_kept {
                        self.memo.remember(&slice, self.kept_bytes, &ids[before..], used);
                    }
                    used
                }
            };
            // Words that fill the slice need a longer one.
            bytes = if used < slice.text.len() / 2 { bytes * 8 } else { self.slice_bytes };
            start += used;
        }
        Ok(())
    }

    /// Appends the ids of a slice's certain words, and returns the bytes of these.
    fn encode_slice(
        &self,
        slice: &Slice,
        known: &mut Known,
        ids: &mut Vec<u32>,
    ) -> tokenizers::Result<usize> {
        let words = self.words(slice.text, known)?;
        if slice.last {
            ids.extend(words.ids);
            return Ok(slice.text.len());
        }
        let (of_ids, used) = self.certain(slice.text, &words.ends);
        ids.extend_from_slice(&words.ids[..of_ids]);
        Ok(used)
    }

    /// Does what `Tokenizer::encode` does, except for special tokens around the text.
    fn words(&self, slice: &str, known: &mut Known) -> tokenizers::Result<Words> {
        let added = self.tokenizer.get_added_vocabulary();
        let pieces = added.extract_and_normalize(self.tokenizer.get_normalizer(), slice);
        let pieces = pieces.get_splits(OffsetReferential::Original, OffsetType::Byte);
        let mut words = Words::default();
        for (text, (begin, end), tokens) in pieces {
            if let Some(tokens) = tokens {
                words.ids.extend(tokens.iter().map(|token| token.id));
                words.end(begin, end);
                continue;
            }
            if slice.get(begin..end) != Some(text) {
                return self.words_of_library(slice); // which knows where normalized text came from
            }
            let mut at = 0;
            while at < text.len() {
                let pieces = (&self.cuts.splitter).find_matches(&text[at..])?;
                let base = at;
                for ((from, to), matched) in pieces {
                    if from == to {
                        continue;
                    }
                    let from = base + from;
                    at = if matched { base + to } else { from + blank_word(&text[from..])? };
                    self.encode_word(&text[from..at], known, &mut words.ids)?;
                    words.end(begin + from, begin + at);
                    if !matched {
                        break; // the splitter goes on behind this word
                    }
                }
            }
        }
        Ok(words)
    }

    fn encode_word(
        &self,
        word: &str,
        known: &mut Known,
        ids: &mut Vec<u32>,
    ) -> tokenizers::Result<()> {
        if let Some(found) = known.get(word) {
            ids.extend_from_slice(found);
            return Ok(());
        }
        let letter_of = |byte| self.cuts.letters[usize::from(byte)];
        let letters: String = word.bytes().map(letter_of).collect();
        let before = ids.len();
        let tokens = self.tokenizer.get_model().tokenize(&letters)?;
        ids.extend(tokens.iter().map(|token| token.id));
        if known.len() < KNOWN_WORDS && word.len() <= KNOWN_BYTES {
            known.insert(word.to_owned(), ids[before..].to_vec());
        }
        Ok(())
    }

    fn words_of_library(&self, slice: &str) -> tokenizers::Result<Words> {
        let mut runs = slice.split(|c: char| !c.is_whitespace());
        if runs.any(|run| run.len() >= BLANKS_MAX && run.chars().count() >= BLANKS_MAX) {
            let what = "blanks in a row beside text that NFC changes; fewer are supported";
            return Err(format!("{BLANKS_MAX} {what}").into());
        }
        let added = self.tokenizer.get_added_vocabulary();
        let mut split = added.extract_and_normalize(self.tokenizer.get_normalizer(), slice);
        if let Some(splitter) = self.tokenizer.get_pre_tokenizer() {
            splitter.pre_tokenize(&mut split)?;
        }
        let model = self.tokenizer.get_model();
        split.tokenize(|word| model.tokenize(word.get()))?;
        let mut words = Words::default();
        for (_, (begin, end), tokens) in
            split.get_splits(OffsetReferential::Original, OffsetType::Byte)
        {
            words.ids.extend(tokens.iter().flatten().map(|token| token.id));
            words.end(begin, end);
        }
        Ok(words)
    }

    /// How many ids of a slice are the whole text's, and the bytes they stand for.
    fn certain(&self, slice: &str, words: &[(usize, usize, usize)]) -> (usize, usize) {
        let left = self.cuts.longest_added + LEFT_BYTES;
        for kept in (1..words.len().saturating_sub(LEFT_WORDS)).rev() {
            let ((_, before, of_ids), (at, ..)) = (words[kept - 1], words[kept]);
            let next = slice[at..].chars().next();
            if before == at && at + left <= slice.len() && next.is_some_and(begins_anew) {
                return (of_ids, at);
            }
        }
        (0, 0)
    }
}
