//! Grammars over a tokenizer's vocabulary: a JSON schema, a regular expression or a Lark grammar
//! becomes a matcher that says, after every token, which tokens may come next. Bounded by
//! llguidance's limits.

use std::sync::Arc;

use llguidance::api::TopLevelGrammar;
use llguidance::earley::SlicedBiasComputer;
use llguidance::ParserFactory;
use toktrie::{InferenceCapabilities, TokEnv, TokRxInfo, TokTrie, TokenId, TokenizerEnv};

use crate::tokenizer::Tokenizer;

const SOURCE_BYTES_MAX: usize = 1 << 20;

pub struct Grammars {
    factory: ParserFactory,
}

pub struct Matcher {
    inner: llguidance::Matcher,
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
    pub fn new(
        tokenizer: &Tokenizer,
        end_id: u32,
        mask_items_max: usize,
    ) -> Result<Grammars, String> {
        let table = &tokenizer.table;
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
        let parser = self.factory.create_parser(grammar).map_err(|e| e.to_string())?;
        let inner = llguidance::Matcher::new(Ok(parser));
        match inner.get_error() {
            Some(error) => Err(error),
            None => Ok(Matcher { inner }),
        }
    }
}

// Whoever waits for a mask computes it: a matcher moves between threads.
const _: () = {
    const fn moves_between_threads<T: Send>() {}
    moves_between_threads::<Matcher>()
};

impl Matcher {
    /// A matcher in the same state that shares nothing with this one.
    pub fn copy(&self) -> Matcher {
        Matcher { inner: self.inner.deep_clone() }
    }

    pub fn mask(&mut self, words: &mut [u32]) -> Result<(), String> {
        let mask = self.inner.compute_mask_or_eos().map_err(|e| e.to_string())?;
        words.fill(0);
        for (to, from) in words.iter_mut().zip(mask.as_slice()) {
            *to = *from;
        }
        Ok(())
    }

    pub fn accept(&mut self, id: u32) -> Result<(), String> {
        self.inner.consume_token(id).map_err(|e| e.to_string())
    }

    pub fn complete(&mut self) -> Result<bool, String> {
        self.inner.is_accepting().map_err(|e| e.to_string())
    }
}
