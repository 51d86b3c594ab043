/* The C interface of the Rust library in rust/: tokenizers, chat templates and grammars. Included
 * by src/text only. Strings are UTF-8 with a length, never zero-terminated. A function that can
 * fail returns NULL or a negative number and sets *error; the caller frees every braid_text_buffer
 * it was given with braid_text_buffer_free. No Rust panic leaves the library: it becomes an error.
 * Handles that are not const may be used by one thread at a time, const ones by several. */
#ifndef BRAID_TEXT_H_
#define BRAID_TEXT_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct braid_text_tokenizer braid_text_tokenizer;
typedef struct braid_text_template braid_text_template;
typedef struct braid_text_grammars braid_text_grammars;
typedef struct braid_text_matcher braid_text_matcher;

typedef struct {
  const char* data;
  size_t size;
} braid_text_view;

/* Owned by the caller; {NULL, 0, 0} is empty. */
typedef struct braid_text_buffer {
  char* data;
  size_t size;
  size_t capacity;
} braid_text_buffer;

typedef struct {
  uint32_t* data;
  size_t size;
  size_t capacity;
} braid_text_ids;

void braid_text_buffer_free(braid_text_buffer buffer);
void braid_text_ids_free(braid_text_ids ids);

/* ---- tokenizer ---- */

/* Row i of the table is token i: bytes[offsets[i] .. offsets[i + 1]), empty where no token has the
 * id. Lives as long as the tokenizer. */
typedef struct braid_text_table {
  size_t token_count;
  const uint8_t* bytes;
  const uint32_t* offsets; /* token_count + 1 */
  const uint8_t* special;  /* token_count; 1: left out of decoded text on request */
  int strips_leading_space;
} braid_text_table;

/* `json` is the content of tokenizer.json. */
braid_text_tokenizer* braid_text_tokenizer_load(braid_text_view json, braid_text_buffer* error);
/* The contents of tiktoken.model and of the tokenizer_config.json beside it. */
braid_text_tokenizer* braid_text_tokenizer_load_tiktoken(braid_text_view model,
                                                         braid_text_view config,
                                                         braid_text_buffer* error);
void braid_text_tokenizer_free(braid_text_tokenizer* tokenizer);
braid_text_table braid_text_tokenizer_table(const braid_text_tokenizer* tokenizer);
typedef struct {
  int add_special_tokens;
  size_t slice_bytes; /* longer texts are worked on in slices where that changes no id; 0: never */
  size_t kept_bytes;  /* of slices that are remembered with their tokens */
  braid_text_view scope; /* they are looked up among those of the same scope */
} braid_text_encoding;
int32_t braid_text_tokenizer_encode(const braid_text_tokenizer* tokenizer, braid_text_view text,
                                    braid_text_encoding encoding, braid_text_ids* ids,
                                    braid_text_buffer* error);
typedef struct {
  uint64_t found, added; /* slices */
  size_t bytes;          /* that are kept, about */
} braid_text_memo;
braid_text_memo braid_text_tokenizer_memo(const braid_text_tokenizer* tokenizer);
/* The id of a token by its name in the file, or -1. */
int32_t braid_text_tokenizer_token_id(const braid_text_tokenizer* tokenizer, braid_text_view token);

/* ---- chat template ---- */

typedef struct {
  uint64_t fuel;         /* template instructions, and 64 bytes of what they make, each */
  uint64_t output_bytes; /* of the result, and of everything printed on the way to it */
  uint64_t wall_ms;      /* looked at whenever something is printed */
} braid_text_render_limits;

/* Checks that `source` parses. */
braid_text_template* braid_text_template_compile(braid_text_view source, braid_text_buffer* error);
void braid_text_template_free(braid_text_template* compiled);
/* `context` is a JSON object. 0 on success. */
int32_t braid_text_template_render(const braid_text_template* compiled, braid_text_view context,
                                   braid_text_render_limits limits, braid_text_buffer* output,
                                   braid_text_buffer* error);

/* ---- grammar ---- */

/* `table` is a tokenizer's, or a copy of one; it is read, not kept. `end_id` is the token that may
   follow a complete text. Finding what may come next ends with an error after `mask_items_max`
   items of the parser. */
braid_text_grammars* braid_text_grammars_create(braid_text_table table, uint32_t end_id,
                                                uint64_t mask_items_max, braid_text_buffer* error);
void braid_text_grammars_free(braid_text_grammars* grammars);
/* `kind` is "json_schema", "regex" or "lark". */
braid_text_matcher* braid_text_matcher_create(const braid_text_grammars* grammars,
                                              braid_text_view kind, braid_text_view source,
                                              braid_text_buffer* error);
/* A matcher in the same state, for another stream; `matcher` is only read. */
braid_text_matcher* braid_text_matcher_copy(const braid_text_matcher* matcher,
                                            braid_text_buffer* error);
void braid_text_matcher_free(braid_text_matcher* matcher);
/* Bit i of words[i / 32] is set if token i may come next. Bits past the vocabulary are cleared. */
int32_t braid_text_matcher_mask(braid_text_matcher* matcher, uint32_t* words, size_t word_count,
                                braid_text_buffer* error);
/* 0 on success; a token that the mask forbids is an error, and the matcher is of no use after it.
 */
int32_t braid_text_matcher_accept(braid_text_matcher* matcher, uint32_t id,
                                  braid_text_buffer* error);
/* Takes back the last `count` tokens. 0 on success; a grammar that cannot is an error, and the
   matcher is of no use after it. */
int32_t braid_text_matcher_rewind(braid_text_matcher* matcher, size_t count,
                                  braid_text_buffer* error);
/* Tokens of the text that must come next, as far as there is one and at most `token_count`; the end
   token after a complete text. Returns how many, -1 after an error. */
int32_t braid_text_matcher_forced(braid_text_matcher* matcher, uint32_t* tokens, size_t token_count,
                                  braid_text_buffer* error);
/* 1 if the text so far is complete, 0 if not, -1 after an error. */
int32_t braid_text_matcher_complete(braid_text_matcher* matcher, braid_text_buffer* error);

#ifdef __cplusplus
}
#endif
#endif /* BRAID_TEXT_H_ */
