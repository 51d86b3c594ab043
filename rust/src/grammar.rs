//! Grammars over a tokenizer's vocabulary: a JSON schema, a regular expression or a Lark grammar
//! becomes a matcher that says, after every token, which tokens may come next. What a matcher may
//! do at one token, and in all, is bounded; compiling is bounded by the caller (a trial process).

use std::sync::Arc;

use llguidance::api::{StopReason, TopLevelGrammar};
use llguidance::earley::SlicedBiasComputer;
use llguidance::ParserFactory;
use toktrie::{InferenceCapabilities, TokEnv, TokRxInfo, TokTrie, TokenId, TokenizerEnv};

const SOURCE_BYTES_MAX: usize = 1 << 20;
const MESSAGE_CHARS_MAX: usize = 300;
const LEXER_STATES_MAX: usize = 1 << 15;
/// Work of a matcher's lexer beyond that of compiling it, over all its tokens. Each unit leaves
/// tens of bytes behind.
const LEXER_WORK_MAX: u64 = 4_000_000;

pub struct Grammars {
    factory: ParserFactory,
}

pub struct Matcher {
    inner: llguidance::Matcher,
    compile_work: Option<u64>, // set by the first mask
}

/// The words of a vocabulary, end to end: word i is bytes[offsets[i]..offsets[i + 1]].
pub struct Words<'a> {
    pub bytes: &'a [u8],
    pub offsets: &'a [u32],
    pub special: &'a [u8],
}

struct Vocabulary {
    trie: TokTrie,
}

impl TokenizerEnv for Vocabulary {
    fn tok_trie(&self) -> &TokTrie {
        &self.trie
    }

    /// The longest tokens first; grammars need some tokenisation of forced text, not the canonical
    /// one.
    fn tokenize_bytes(&self, text: &[u8]) -> Vec<TokenId> {
        self.trie.greedy_tokenize(text)
    }

    fn tokenize_is_canonical(&self) -> bool {
        false
    }
}

impl Grammars {
    pub fn new(table: &Words, end_id: u32, mask_items_max: usize) -> Result<Grammars, String> {
        let size = table.special.len();
        if end_id as usize >= size {
            return Err(format!("the end token {end_id} is not below {size}"));
        }
        let words: Vec<Vec<u8>> = (0..size)
            .map(|id| {
                let bytes =
                    &table.bytes[table.offsets[id] as usize..table.offsets[id + 1] as usize];
                let marker = table.special[id] != 0;
                // A special token is not its name: the marker byte keeps it out of ordinary text.
                let prefix = marker.then_some(TokTrie::SPECIAL_TOKEN_MARKER);
                prefix.into_iter().chain(bytes.iter().copied()).collect()
            })
            .collect();
        let trie = TokTrie::from(&TokRxInfo::new(size as u32, end_id), &words);
        let env: TokEnv = Arc::new(Vocabulary { trie });
        let slices = SlicedBiasComputer::general_slices();
        let mut factory = ParserFactory::new(&env, InferenceCapabilities::default(), &slices)
            .map_err(|e| e.to_string())?;
        factory.quiet();
        factory.limits_mut().verbose_errors = false;
        factory.limits_mut().step_max_items = mask_items_max;
        factory.limits_mut().max_items_in_row = mask_items_max;
        factory.limits_mut().max_lexer_states = LEXER_STATES_MAX;
        Ok(Grammars { factory })
    }

    pub fn compile(&self, kind: &str, source: &str) -> Result<Matcher, String> {
        if source.len() > SOURCE_BYTES_MAX {
            return Err(format!("{} bytes, but at most {SOURCE_BYTES_MAX} are read", source.len()));
        }
        let grammar = match kind {
            "json_schema" => TopLevelGrammar::from_json_schema(
                serde_json::from_str(source).map_err(|e| format!("not valid JSON: {e}"))?,
            ),
            "regex" => TopLevelGrammar::from_regex(source),
            "lark" => TopLevelGrammar::from_lark(source.to_string()),
            _ => return Err(format!("kind {kind:?}, expected json_schema, regex or lark")),
        };
        let parser = self.factory.create_parser(grammar).map_err(|e| plain(&e.to_string()))?;
        let inner = llguidance::Matcher::new(Ok(parser));
        if let Some(error) = inner.get_error() {
            return Err(plain(&error));
        }
        if inner.stop_reason() == StopReason::NoExtensionBias {
            return Err("no text matches it".to_string());
        }
        Ok(Matcher { inner, compile_work: None })
    }
}

/// Begins the messages of grammars that are right, but more than the library's limits allow.
pub const TOO_COMPLEX: &str = "too complex: ";

/// What the library says of its limits, and what its users read.
const LIMITS: [(&str, &str); 6] = [
    ("if regex is empty", "a pattern, with the lengths and patterns that apply beside it"),
    ("relevance", "its regular expressions"),
    ("fuel", "its regular expressions"),
    ("lexer precomputation", "its regular expressions"),
    ("too many states", "its regular expressions"),
    ("schema too large", "the schema with its references and combinations written out"),
];

/// A message of the library without what it says of its own inside: the text of the grammar, and
/// everything behind the first line.
fn plain(message: &str) -> String {
    if let Some((_, what)) = LIMITS.iter().find(|(words, _)| message.contains(words)) {
        return format!("{TOO_COMPLEX}{what} took more units of work than a grammar may");
    }
    if message.contains("NoExtensionBias") {
        return "no text matches it".to_string();
    }
    let line = message.lines().next().unwrap_or_default().trim();
    let line = line.split(" at line ").next().unwrap_or_default();
    line.chars().take(MESSAGE_CHARS_MAX).collect()
}

// Whoever waits for a mask computes it: a matcher moves between threads.
const _: () = {
    const fn moves_between_threads<T: Send>() {}
    moves_between_threads::<Matcher>()
};

impl Matcher {
    /// A matcher in the same state that shares nothing with this one.
    pub fn copy(&self) -> Matcher {
        Matcher { inner: self.inner.deep_clone(), compile_work: self.compile_work }
    }

    pub fn mask(&mut self, words: &mut [u32]) -> Result<(), String> {
        let mask = self.inner.compute_mask_or_eos().map_err(|e| plain(&e.to_string()))?;
        words.fill(0);
        for (to, from) in words.iter_mut().zip(mask.as_slice()) {
            *to = *from;
        }
        let work = self.inner.last_step_stats().map_err(|e| plain(&e.to_string()))?.lexer_cost;
        let before = *self.compile_work.get_or_insert(work);
        if work > before + LEXER_WORK_MAX {
            return Err(format!(
                "the lexer has done {LEXER_WORK_MAX} units of work for one answer"
            ));
        }
        Ok(())
    }

    pub fn accept(&mut self, id: u32) -> Result<(), String> {
        self.inner.consume_token(id).map_err(|e| plain(&e.to_string()))
    }

    /// Takes back the last `count` tokens. Grammars with lexemes that count tokens or have a stop
    /// text of their own cannot; the matcher is of no use after an error.
    pub fn rewind(&mut self, count: usize) -> Result<(), String> {
        self.inner.rollback(count).map_err(|e| plain(&e.to_string()))
    }

    /// Tokens of the text that must come next, the longest first; the end token after a whole text.
    /// Returns how many were written.
    pub fn forced(&mut self, to: &mut [u32]) -> Result<usize, String> {
        let env = self.inner.tok_env().map_err(|e| plain(&e.to_string()))?;
        let trie = env.tok_trie();
        let ids = match self.inner.stop_reason() {
            StopReason::NotStopped => trie.greedy_tokenize(&self.inner.compute_ff_bytes()),
            _ => vec![trie.eos_token()],
        };
        if let Some(error) = self.inner.get_error() {
            return Err(plain(&error));
        }
        let count = ids.len().min(to.len());
        to[..count].copy_from_slice(&ids[..count]);
        Ok(count)
    }

    pub fn complete(&mut self) -> Result<bool, String> {
        self.inner.is_accepting().map_err(|e| plain(&e.to_string()))
    }
}
