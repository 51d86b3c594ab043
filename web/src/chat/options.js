// The reader's options for requests: what the settings show, store and send.
//
// All values are strings, as they were typed. An empty one is not sent, so that the model's own
// default holds; one that the server does not take is refused by the server, in its words.
import { load, save } from "../base/storage.js";

// group, name in the request, label, what it means, the field's bounds, and what an empty field
// shows where the server names no default.
export const kOptions = [
  { group: "Sampling", name: "temperature", label: "Temperature", min: 0, max: 2, step: 0.1,
    hint: "0 always takes the likeliest token", empty: "1" },
  { group: "Sampling", name: "top_p", label: "Top-p", min: 0, max: 1, step: 0.05,
    hint: "Likeliest tokens up to this share", empty: "1" },
  { group: "Sampling", name: "top_k", label: "Top-k", min: 0, step: 1,
    hint: "At most this many candidates", empty: "all" },
  { group: "Sampling", name: "min_p", label: "Min-p", min: 0, max: 1, step: 0.01,
    hint: "Share of the likeliest token’s probability", empty: "0" },
  { group: "Penalties", name: "presence_penalty", label: "Presence", min: -2, max: 2, step: 0.1,
    hint: "−2 to 2, once for each used token", empty: "0" },
  { group: "Penalties", name: "frequency_penalty", label: "Frequency", min: -2, max: 2, step: 0.1,
    hint: "−2 to 2, for each use of a token", empty: "0" },
  { group: "Penalties", name: "repetition_penalty", label: "Repetition", min: 0, max: 10,
    step: 0.05, hint: "Above 1 avoids used tokens", empty: "1" },
  { group: "Length and repeatability", name: "max_tokens", label: "Max tokens", min: 1, step: 1,
    hint: "Longest answer, with its thinking", empty: "no limit" },
  { group: "Length and repeatability", name: "thinking_budget", label: "Thinking budget", min: 0,
    step: 1, hint: "Longest thinking, in tokens", empty: "no limit" },
  { group: "Length and repeatability", name: "seed", label: "Seed", step: 1,
    hint: "The same seed repeats an answer", empty: "random" },
];

export const kDefaults = {
  ...Object.fromEntries(kOptions.map(({ name }) => [name, ""])),
  stop: "",
  system: "",
  thinking: true,
};

// Options from stored data of any shape: what has the right type is kept.
export function asOptions(value) {
  const options = { ...kDefaults };
  for (const [name, fallback] of Object.entries(kDefaults)) {
    if (typeof value?.[name] === typeof fallback) options[name] = value[name];
  }
  return options;
}

export const loadOptions = () => asOptions(load("settings"));
export const saveOptions = (options) => save("settings", options);

const kEscapes = { n: "\n", t: "\t", "\\": "\\" };

// One stop string a line; \n, \t and \\ stand for a line break, a tab and a backslash.
export const stopStrings = (text) => text
  .split("\n")
  .filter((line) => line !== "")
  .map((line) => line.replace(/\\([nt\\])/g, (_, letter) => kEscapes[letter]));

// The fields of a request that the options set; the messages begin with the system prompt.
export function requestFields(options, turns) {
  const system = options.system.trim();
  const request = {
    messages: system ? [{ role: "system", content: system }, ...turns] : turns,
    chat_template_kwargs: { enable_thinking: options.thinking },
  };
  for (const { name } of kOptions) {
    if (options[name].trim() !== "") request[name] = Number(options[name]);
  }
  const stop = stopStrings(options.stop);
  if (stop.length > 0) request.stop = stop;
  return request;
}
