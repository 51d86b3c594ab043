"""Train the byte-level BPE tokenizer and write the tokenizer files."""

import argparse
import itertools
import json
import pathlib
import random

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

import tasks

BASE_VOCAB = 4064  # byte symbols and merges; the special tokens follow
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TAGS = ["<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>"]

# Words outside the tasks' world, so that other English text stays short.
COMMON = """
about above across act add after again against age ago agree air all allow almost alone along
already also always am among amount an and animal another answer any anything appear area arm
around art as ask at away back bad ball bank base be bear beat beautiful because become bed before
begin behind believe below best better between beyond big bird bit block blood board body bone
both bottom break bring brother build burn business but by call came can capital care carry case
catch cause center century certain chance change character check child choose church circle city
claim class clean clear climb close cold collect colour come common company compare complete
computer condition consider contain continue control cook cool copy corner correct cost could
count country course cover create cross cry current cut danger dark data daughter day dead deal
death decide deep degree describe design detail develop did die differ difficult direct discover
discuss distance divide do doctor does done double doubt down draw dream dress drink drive drop
dry during each ear early earth east easy eat edge effect egg eight either electric else end enemy
energy engine enough enter equal error even evening event ever every exact example except exercise
expect experience experiment explain express eye face fact fall family famous far farm fast father
fear feel few fight figure fill final find fine finger finish fire first fish fit five floor flow
fly follow food foot for force foreign form forward four free friend from front fruit full
function game gas gather gave general get girl give glass go gold good govern great ground group
grow guess had hair half hand happen hard has hat have he head hear heart heat help her here high
him his history hit hold hole home hope hot hour house how however huge human hundred hunt hurry
idea if important in include increase industry inside instead interest into invent iron is issue
it job join joy jump just keep kind king know land language large last late laugh law lay lead
learn least leave left leg length less let letter level lie life lift light like line list listen
little live local long look lose lot loud love low machine made main make man manage many mark
market master material matter may me mean measure meat meet member memory metal method middle
might mile million mind mine minute miss model modern moment money month moon more morning most
mother motion mountain mouth move much music must my name nation nature near necessary neck need
never new news next night nine no noise none nor normal north nose not note nothing notice now
number object observe occur ocean of off offer office often oil on once one only open operate
opposite or order other our out over own oxygen page paint pair paper parent part particular party
pass past path pattern pay people perhaps period person phrase pick picture piece plan plane
planet plant play please point poem police poor port position possible post power practice prepare
present press pretty price print problem process produce product program property protect prove
provide public pull purpose push put question quick quite race radio rain raise range rate rather
reach read ready real reason receive record region remain remember repeat reply report represent
require rest result return rich ride right ring rise road rock roll room root round row rule run
safe said sail same sand save say scale school science score season seat second secret section see
seed seem select sell send sense sentence separate serve set settle seven several shape share
sharp she sheet shine ship shoe shop short should shoulder shout show side sight sign silent
similar simple since sing single sister sit six size skill skin sky sleep slow smell smile smoke
smooth snow so social soft soil soldier solution solve some son song soon sound source south space
speak special speech speed spell spend spoke spot spread spring square stage stand star start
state station stay steam steel step stick still stop store storm straight strange stream street
strong student study subject success such sudden suffix suggest suit summer sun supply support
sure surface surprise swim symbol system tail take talk tall teach team tell temperature ten term
test than that the their them then theory there these they thick thin thing think third this those
though thought thousand three through throw thus tie time tiny tire to today together tomorrow too
took top total touch toward town track trade train travel tree triangle trip trouble truck true
trust try turn twenty two type uncle under unit until up upon us use usual valley value vary verb
very view visit voice vote wait walk wall want war warm was wash watch water wave way we wear
weather week weight well went were west what where whether which while who whole whose why wide
wife wild will win wing winter wire wish with woman wonder word work world would write wrong yard
year yes yet you young your def class return import self None True False print int float str list
dict set len range lambda yield async await break assert string number array null boolean object
token model server request response error cache memory batch kernel
"""

CHAT_TEMPLATE = """\
{%- set ns = namespace(last_query=-1) %}
{%- for message in messages %}
    {%- if message.role == "user" %}
        {%- set ns.last_query = loop.index0 %}
    {%- endif %}
{%- endfor %}
{%- set system = "" %}
{%- if messages[0].role == "system" %}
    {%- set system = messages[0].content | trim %}
{%- endif %}
{%- if tools %}
    {{- "<|im_start|>system\\n# Tools\\n\\nYou may call these functions:\\n<tools>" }}
    {%- for tool in tools %}
        {{- "\\n" + (tool | tojson) }}
    {%- endfor %}
    {{- "\\n</tools>\\n\\nTo call one, write:\\n\
<tool_call>\\n{\\"name\\": NAME, \\"arguments\\": ARGUMENTS}\\n</tool_call>" }}
    {%- if system %}
        {{- "\\n\\n" + system }}
    {%- endif %}
    {{- "<|im_end|>\\n" }}
{%- elif system %}
    {{- "<|im_start|>system\\n" + system + "<|im_end|>\\n" }}
{%- endif %}
{%- for message in messages %}
    {%- set content = (message.content or "") | trim %}
    {%- if message.role == "user" %}
        {{- "<|im_start|>user\\n" + content + "<|im_end|>\\n" }}
    {%- elif message.role == "assistant" %}
        {%- set reasoning = message.reasoning_content or "" %}
        {%- if not reasoning and "</think>" in content %}
            {%- set reasoning = content.split("</think>")[0].split("<think>")[-1] %}
            {%- set content = content.split("</think>")[-1] | trim %}
        {%- endif %}
        {{- "<|im_start|>assistant\\n" }}
        {%- if loop.index0 > ns.last_query %}
            {{- "<think>\\n" + (reasoning | trim) + "\\n</think>\\n\\n" }}
        {%- endif %}
        {{- content }}
        {%- for call in message.tool_calls or [] %}
            {%- if call.function %}
                {%- set call = call.function %}
            {%- endif %}
            {%- if content or not loop.first %}
                {{- "\\n" }}
            {%- endif %}
            {{- "<tool_call>\\n{\\"name\\": \\"" + call.name + "\\", \\"arguments\\": " }}
            {%- if call.arguments is string %}
                {{- call.arguments }}
            {%- else %}
                {{- call.arguments | tojson }}
            {%- endif %}
            {{- "}\\n</tool_call>" }}
        {%- endfor %}
        {{- "<|im_end|>\\n" }}
    {%- elif message.role == "tool" %}
        {%- if loop.first or messages[loop.index0 - 1].role != "tool" %}
            {{- "<|im_start|>user" }}
        {%- endif %}
        {{- "\\n<tool_response>\\n" + content + "\\n</tool_response>" }}
        {%- if loop.last or messages[loop.index0 + 1].role != "tool" %}
            {{- "<|im_end|>\\n" }}
        {%- endif %}
    {%- elif not loop.first %}
        {{- raise_exception("Unexpected role: " + message.role) }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- "<|im_start|>assistant\\n<think>\\n" }}
    {%- if enable_thinking is defined and not enable_thinking %}
        {{- "\\n</think>\\n\\n" }}
    {%- endif %}
{%- endif %}
"""


def corpus(seed, documents):
    """Task documents, then the common words in random order and case."""
    for sample in itertools.islice(tasks.stream(seed, lambda: 600), documents):
        for text, _ in tasks.render(sample):
            for token in SPECIAL + TAGS:
                text = text.replace(token, "\n")
            yield text
    rng, words = random.Random(seed), COMMON.split()
    for _ in range(6000):
        line = [
            w + rng.choice(["", "", "", "s", "ing", "ed", "ly", "er"])
            for w in rng.choices(words, k=12)
        ]
        yield " ".join(line) + "."
        yield line[0].capitalize() + " " + line[1]


def main():
    """Train the tokenizer and write its files and the chat template."""
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("out", type=pathlib.Path)
    p.add_argument("--documents", type=int, default=20000)
    args = p.parse_args()
    tok = Tokenizer(models.BPE())
    tok.normalizer = normalizers.NFC()
    tok.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tok.decoder = decoders.ByteLevel()
    tok.post_processor = processors.ByteLevel(trim_offsets=False)
    trainer = trainers.BpeTrainer(
        vocab_size=BASE_VOCAB,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tok.train_from_iterator(corpus(7, args.documents), trainer)
    assert tok.get_vocab_size() == BASE_VOCAB, tok.get_vocab_size()
    tok.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in SPECIAL])
    tok.add_tokens([AddedToken(t, special=False, normalized=False) for t in TAGS])
    args.out.mkdir(parents=True, exist_ok=True)
    tok.save(str(args.out / "tokenizer.json"))
    added = {
        str(tok.token_to_id(t)): dict(
            content=t,
            lstrip=False,
            normalized=False,
            rstrip=False,
            single_word=False,
            special=t in SPECIAL,
        )
        for t in SPECIAL + TAGS
    }
    config = dict(
        add_bos_token=False,
        add_prefix_space=False,
        added_tokens_decoder=added,
        bos_token=None,
        clean_up_tokenization_spaces=False,
        eos_token="<|im_end|>",
        errors="replace",
        model_max_length=8192,
        pad_token="<|endoftext|>",
        split_special_tokens=False,
        tokenizer_class="PreTrainedTokenizerFast",
        unk_token=None,
    )
    (args.out / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")
    (args.out / "chat_template.jinja").write_text(CHAT_TEMPLATE)


if __name__ == "__main__":
    main()
