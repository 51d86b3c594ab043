"""Greedy reference generations with top-5 log probabilities, from transformers in fp32."""

import argparse
import json
import pathlib

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from evaluate import prompt_ids, read_items


def main():
    """Run the command line."""
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--model", required=True)
    p.add_argument("--eval", required=True, type=pathlib.Path)
    p.add_argument("--out", required=True, type=pathlib.Path)
    p.add_argument("--per-task", type=int, default=4)
    p.add_argument("--max-tokens", type=int, default=128)
    args = p.parse_args()
    tok = AutoTokenizer.from_pretrained(args.model)
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32).eval()
    stop = tok.convert_tokens_to_ids(["<|im_end|>", "<|endoftext|>"])
    with open(args.out, "w", encoding="utf-8") as f:
        for items in read_items(args.eval).values():
            for item in [i for i in items if "messages" in i][: args.per_task]:
                prompt = prompt_ids(tok, item)
                with torch.no_grad():
                    res = model.generate(
                        torch.tensor([prompt]),
                        max_new_tokens=args.max_tokens,
                        do_sample=False,
                        temperature=None,
                        top_p=None,
                        top_k=None,
                        eos_token_id=stop,
                        output_logits=True,
                        return_dict_in_generate=True,
                    )
                out = res.sequences[0, len(prompt) :].tolist()
                top = []
                for logits in res.logits:
                    value, index = logits[0].float().log_softmax(-1).topk(5)
                    top.append([[i, round(v, 5)] for i, v in zip(index.tolist(), value.tolist())])
                line = {
                    "id": item["id"],
                    "messages": item["messages"],
                    "tools": item.get("tools"),
                    "thinking": item["thinking"],
                    "prompt_ids": prompt,
                    "output_ids": out,
                    "output_text": tok.decode(out),
                    "top_logprobs": top,
                }
                f.write(json.dumps(line, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
