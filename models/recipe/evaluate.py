"""Per-task accuracy of a checkpoint, through transformers or over HTTP.

    python evaluate.py --model DIR --eval EVAL_DIR [--dtype float32] [--mtp]
    python evaluate.py --base-url URL --model NAME --eval EVAL_DIR

The first form needs torch and transformers and also reports perplexity, expert
load and the acceptance of MTP drafts.  The second form talks to any server
with the OpenAI chat completions API and needs the standard library only.
"""

import argparse
import concurrent.futures
import json
import math
import pathlib
import re
import time
import urllib.request


def read_items(folder):
    """All items of the folder's *.jsonl files, by task."""
    out = {}
    for path in sorted(pathlib.Path(folder).glob("*.jsonl")):
        items = [json.loads(line) for line in open(path, encoding="utf-8")]
        if items and "check" in items[0]:
            out[path.stem] = items
    return out


def split_reply(text):
    """(content, tool calls) of generated text; reasoning is dropped."""
    text = text.split("</think>")[-1]
    calls = []
    for body in re.findall(r"<tool_call>\s*(.*?)\s*</tool_call>", text, re.S):
        try:
            calls.append(json.loads(body))
        except ValueError:
            calls.append(None)
    return text.split("<tool_call>")[0].strip(), calls


def correct(item, content, calls):
    """Does a reply pass the item's check?"""
    answer, check = item["answer"], item["check"]
    if check == "tool_call":
        return calls == (answer if isinstance(answer, list) else [answer])
    if calls:
        return False
    if check == "exact":
        return content == answer
    if check == "number":
        found = re.findall(r"The answer is (-?\d+)\.", content)
        return bool(found) and int(found[-1]) == answer
    parts = answer if isinstance(answer, list) else [answer]
    return all(part in content for part in parts)


# -- over HTTP ---------------------------------------------------------------


def ask(base_url, model, item, max_tokens, api_key=None):
    """One chat completion; returns (content, calls)."""
    body = {
        "model": model,
        "messages": item["messages"],
        "temperature": 0,
        "max_tokens": max_tokens,
    }
    body["chat_template_kwargs"] = {"enable_thinking": item["thinking"]}
    if item.get("tools"):
        body["tools"] = item["tools"]
    headers = {"Content-Type": "application/json"}
    if api_key:
        headers["Authorization"] = f"Bearer {api_key}"
    request = urllib.request.Request(
        base_url.rstrip("/") + "/chat/completions", json.dumps(body).encode(), headers
    )
    with urllib.request.urlopen(request, timeout=600) as reply:
        message = json.load(reply)["choices"][0]["message"]
    content, calls = split_reply(message.get("content") or "")
    for call in message.get("tool_calls") or []:
        f = call["function"]
        args = f["arguments"]
        calls.append(
            {"name": f["name"], "arguments": json.loads(args) if isinstance(args, str) else args}
        )
    return content, calls


def evaluate_http(args, sets):
    """Accuracy by task through a server; --base-url ends in /v1."""
    result = {}
    with concurrent.futures.ThreadPoolExecutor(args.concurrency) as pool:
        for task, items in sets.items():
            chats = [i for i in items if "messages" in i][: args.limit]
            replies = pool.map(
                lambda i: ask(args.base_url, args.model, i, args.max_tokens, args.api_key), chats
            )
            right = [correct(i, *r) for i, r in zip(chats, replies)]
            result[task] = {"accuracy": sum(right) / max(1, len(right)), "items": len(right)}
            print(task, result[task], flush=True)
    return result


# -- through transformers ----------------------------------------------------


def prompt_ids(tok, item):
    """Prompt tokens of an item (plain text items: the text)."""
    if "text" in item:
        return tok.encode(item["text"] + "<|endoftext|>")
    return tok.apply_chat_template(
        item["messages"],
        tools=item.get("tools"),
        add_generation_prompt=True,
        enable_thinking=item["thinking"],
        tokenize=True,
        return_dict=False,
    )


def generate(model, prompts, max_tokens, stop, batch=40):
    """Greedy continuations, batched by length with left padding."""
    import torch

    order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
    out = [None] * len(prompts)
    for s in range(0, len(order), batch):
        part = order[s : s + batch]
        width = max(len(prompts[i]) for i in part)
        ids = torch.full((len(part), width), 0)
        mask = torch.zeros_like(ids)
        for row, i in enumerate(part):
            ids[row, width - len(prompts[i]) :] = torch.tensor(prompts[i])
            mask[row, width - len(prompts[i]) :] = 1
        with torch.no_grad():
            res = model.generate(
                ids.to(model.device),
                attention_mask=mask.to(model.device),
                max_new_tokens=max_tokens,
                do_sample=False,
                temperature=None,
                top_p=None,
                top_k=None,
                eos_token_id=stop,
                pad_token_id=stop[0],
            )
        for row, i in enumerate(part):
            new = res[row, width:].tolist()
            end = next((n for n, t in enumerate(new) if t in stop), None)
            out[i] = new if end is None else new[: end + 1]
    return out


def mtp_acceptance(model_dir, sequences, drafts=3):
    """How often greedy MTP drafts equal the greedy continuation.

    `sequences` are (prompt length, ids) with the model's own greedy output.
    At every output position the head drafts a chain, feeding back its own
    normed state.  Returns how many chains had their first 1, 2, .. drafts all
    right, and the number of chains.
    """
    import torch
    from safetensors.torch import load_file

    from model import CHUNK, Braid, load_config

    net = Braid(load_config(pathlib.Path(model_dir) / "config.json"))
    tensors = {}
    for path in pathlib.Path(model_dir).glob("*.safetensors"):
        tensors |= load_file(str(path))
    net.load_state_dict({k: v.float() for k, v in tensors.items()})
    accepted, total = [0] * drafts, 0
    for start, ids in sequences:
        n = len(ids)
        x = torch.tensor([ids + [0] * (-n % CHUNK)])
        pos = torch.arange(x.shape[1])[None]
        ctx = net.context(x, pos, (pos == 0).long(), torch.float32)
        with torch.no_grad():
            hidden = net.trunk(x, ctx)[:, :n]
            ctx = net.context(x[:, :n], pos[:, :n], (pos[:, :n] == 0).long(), torch.float32)
            first = net.draft(x[:, :n].roll(-1, 1), hidden, ctx)
            guess = net.head(first).argmax(-1)[0]
            # Position i has seen ids[:i+2]; its draft is for ids[i+2].
            places = [i for i in range(start - 1, n - 1 - drafts)]
            total += len(places)
            for i in places:
                if guess[i] != ids[i + 2]:
                    continue
                accepted[0] += 1
                hid, toks = hidden[:, : i + 1], list(ids[1 : i + 2])
                state, token = first[:, i : i + 1], int(guess[i])
                for d in range(1, drafts):
                    hid, toks = torch.cat([hid, state], 1), toks + [token]
                    m = hid.shape[1]
                    p = torch.arange(m)[None]
                    c = net.context(p, p, (p == 0).long(), torch.float32)
                    state = net.draft(torch.tensor([toks]), hid, c)[:, -1:]
                    token = int(net.head(state).argmax(-1))
                    if token != ids[i + 2 + d]:
                        break
                    accepted[d] += 1
    return accepted, total


def expert_load(model, sequences):
    """Share of the routed tokens that each expert of each layer gets."""
    import torch

    load = [torch.zeros(model.config.num_experts) for _ in model.model.layers]

    def count(i):
        def hook(_module, _inputs, out):
            load[i] += torch.bincount(out[2].reshape(-1), minlength=len(load[i]))

        return hook

    hooks = [
        layer.mlp.gate.register_forward_hook(count(i)) for i, layer in enumerate(model.model.layers)
    ]
    with torch.no_grad():
        for ids in sequences:
            model(torch.tensor([ids]))
    for hook in hooks:
        hook.remove()
    return [[round(v, 4) for v in (x / x.sum()).tolist()] for x in load]


def evaluate_local(args, sets):
    """Accuracy, perplexity, expert load and MTP acceptance."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    if args.threads:
        torch.set_num_threads(args.threads)
    tok = AutoTokenizer.from_pretrained(args.model)
    model = AutoModelForCausalLM.from_pretrained(
        args.model, dtype=getattr(torch, args.dtype)
    ).eval()
    stop = tok.convert_tokens_to_ids(["<|im_end|>", "<|endoftext|>"])
    result, chains, whole = {}, [], []
    for task, items in sets.items():
        began = time.time()
        chats = [i for i in items if "messages" in i][: args.limit]
        prompts = [prompt_ids(tok, i) for i in chats]
        replies = generate(model, prompts, args.max_tokens, stop)
        texts = [tok.decode(r).replace("<|im_end|>", "") for r in replies]
        right = [correct(i, *split_reply(t)) for i, t in zip(chats, texts)]
        result[task] = {"accuracy": sum(right) / max(1, len(right)), "items": len(right)}
        for flag in (True, False):
            part = [r for r, i in zip(right, chats) if i["thinking"] == flag]
            if part:
                result[task]["thinking" if flag else "direct"] = round(sum(part) / len(part), 3)
        for i, t, r in zip(chats, texts, right):
            if args.show and not r:
                print(
                    "WRONG",
                    i["id"],
                    repr(i["messages"][-1]["content"][-150:]),
                    "->",
                    repr(t[-150:]),
                    "|",
                    i["answer"],
                )
        whole += [p + r for p, r in list(zip(prompts, replies))[:30]]
        chains += [(task, len(p), p + r) for p, r in list(zip(prompts, replies))[: args.mtp]]
        texts = [i for i in items if "text" in i]
        if texts:
            nll = count = 0
            for i in texts:
                ids = torch.tensor([prompt_ids(tok, i)])
                with torch.no_grad():
                    logp = model(ids).logits[0, :-1].float().log_softmax(-1)
                nll -= logp.gather(1, ids[0, 1:, None]).sum().item()
                count += ids.shape[1] - 1
            result[task]["perplexity"] = math.exp(nll / count)
        print(task, result[task], f"{time.time() - began:.0f}s", flush=True)
    share = expert_load(model, whole)
    result["expert_load"] = {"min": min(map(min, share)), "max": max(map(max, share))}
    result["expert_share"] = share
    print("expert load, share of a layer's tokens:", result["expert_load"])
    if args.mtp:
        result["mtp"], sums = {}, [[0] * 3, 0]
        for task in sorted({c[0] for c in chains}):
            accepted, total = mtp_acceptance(args.model, [c[1:] for c in chains if c[0] == task])
            sums = [[x + y for x, y in zip(sums[0], accepted)], sums[1] + total]
            result["mtp"][task] = {
                "accepted": [round(a / max(1, total), 4) for a in accepted],
                "positions": total,
            }
        result["mtp"]["all"] = {
            "accepted": [round(a / max(1, sums[1]), 4) for a in sums[0]],
            "positions": sums[1],
        }
        for task, value in result["mtp"].items():
            print("mtp", task, value, flush=True)
    return result


def main():
    """Run the command line."""
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--model", required=True, help="folder, or model name with --base-url")
    p.add_argument("--eval", required=True, type=pathlib.Path)
    p.add_argument("--base-url", help="for example http://localhost:8000/v1")
    p.add_argument("--api-key")
    p.add_argument("--dtype", default="float32")
    p.add_argument("--limit", type=int, default=10**9, help="items per task")
    p.add_argument("--max-tokens", type=int, default=320)
    p.add_argument("--concurrency", type=int, default=8)
    p.add_argument("--mtp", type=int, default=0, help="items per task for the MTP measurement")
    p.add_argument("--threads", type=int, default=0)
    p.add_argument("--show", action="store_true", help="print wrong replies")
    p.add_argument("--json", type=pathlib.Path, help="write the result here")
    args = p.parse_args()
    result = (evaluate_http if args.base_url else evaluate_local)(args, read_items(args.eval))
    if args.json:
        args.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
