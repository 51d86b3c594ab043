//! Remembers the tokens of slices of long texts. A conversation comes again with each of its turns,
//! and its beginning has the same slices.
//!
//! A slice is found by its whole content and by a scope, so that nobody learns by the clock what
//! another scope has sent. What was not used for longest goes first, by halves: slices are added to
//! a young half and come back to it when they are found in the old one; a full young half becomes
//! the old one, whose slices are forgotten.

use std::collections::hash_map::RandomState;
use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::{Mutex, PoisonError};

/// What an entry takes beside its texts and tokens, about.
const ENTRY_BYTES: usize = 256;

/// How often slices were found, how many were added, and what those that are kept take, about.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct MemoStats {
    found: u64,
    added: u64,
    bytes: usize,
}

pub struct Slice<'a> {
    pub scope: &'a [u8],
    pub text: &'a str,
    /// Nothing follows it.
    pub last: bool,
}

struct Entry {
    scope: Box<[u8]>,
    text: Box<str>,
    last: bool,
    ids: Box<[u32]>,
    /// Bytes of the text that the tokens stand for.
    used: usize,
}

impl Entry {
    fn is(&self, slice: &Slice) -> bool {
        (&*self.scope, &*self.text, self.last) == (slice.scope, slice.text, slice.last)
    }

    fn bytes(&self) -> usize {
        ENTRY_BYTES + self.scope.len() + self.text.len() + self.ids.len() * size_of::<u32>()
    }
}

#[derive(Default)]
struct Half {
    entries: HashMap<u64, Entry>,
    bytes: usize,
}

impl Half {
    fn take(&mut self, key: u64) -> Option<Entry> {
        let entry = self.entries.remove(&key)?;
        self.bytes -= entry.bytes();
        Some(entry)
    }

    fn put(&mut self, key: u64, entry: Entry) {
        self.take(key);
        self.bytes += entry.bytes();
        self.entries.insert(key, entry);
    }
}

#[derive(Default)]
struct Halves {
    young: Half,
    old: Half,
    found: u64,
    added: u64,
}

impl Halves {
    fn put(&mut self, key: u64, entry: Entry, half_bytes: usize) {
        if entry.bytes() > half_bytes {
            return;
        }
        if self.young.bytes + entry.bytes() > half_bytes {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.put(key, entry);
    }
}

/// Keeps at most about as many bytes as each call says.
#[derive(Default)]
pub struct Memo {
    keys: RandomState,
    halves: Mutex<Halves>,
}

impl Memo {
    fn key(&self, slice: &Slice) -> u64 {
        self.keys.hash_one((slice.scope, slice.text, slice.last))
    }

    /// Appends the slice's tokens if they are known, and returns the bytes that they stand for.
    pub fn find(&self, slice: &Slice, bytes: usize, ids: &mut Vec<u32>) -> Option<usize> {
        let key = self.key(slice);
        let mut halves = self.halves.lock().unwrap_or_else(PoisonError::into_inner);
        if !halves.young.entries.contains_key(&key) {
            let entry = halves.old.take(key)?;
            halves.put(key, entry, bytes / 2);
        }
        let entry = halves.young.entries.get(&key).filter(|entry| entry.is(slice))?;
        ids.extend_from_slice(&entry.ids);
        let used = entry.used;
        halves.found += 1;
        Some(used)
    }

    pub fn remember(&self, slice: &Slice, bytes: usize, ids: &[u32], used: usize) {
        let entry = Entry {
            scope: slice.scope.into(),
            text: slice.text.into(),
            last: slice.last,
            ids: ids.into(),
            used,
        };
        let mut halves = self.halves.lock().unwrap_or_else(PoisonError::into_inner);
        halves.added += 1;
        halves.put(self.key(slice), entry, bytes / 2);
    }

    pub fn stats(&self) -> MemoStats {
        let halves = self.halves.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = halves.young.bytes + halves.old.bytes;
        MemoStats { found: halves.found, added: halves.added, bytes }
    }
}
