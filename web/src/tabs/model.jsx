// The Model tab: what the server says about the model and how it has laid out its memory.
import { bytes, number, seconds, some, words } from "../base/format.js";

// What changes from second to second stands in the strip; limits are for those who send requests.
const kElsewhere = new Set(["scheduler", "limits", "model"]);

// What a reader calls the facts of /server_info, by card, in this order. What is not named here is
// shown in the last card.
const kCards = {
  Model: {
    architecture: "Architecture",
    weights: "Weights",
    context_tokens_max: "Context length",
    vocabulary: "Vocabulary",
    eos_token_ids: "Tokens that end an answer",
    tool_parser: "Format of tool calls",
    reasoning_separated: "Thinking apart from the answer",
  },
  Cache: {
    prefix_cache: "Prefix cache",
    kv_bytes_per_token: "KV cache per token",
    state_bytes_per_sequence: "Recurrent state per sequence",
    cache_tokens_one_sequence: "Room for one sequence",
  },
  Engine: {
    isa: "Instruction set",
    threads: "Threads",
    compute: "Precision of products",
    kv_dtype: "Precision of keys and values",
    mla: "Latent attention, where a model has it",
    step_tokens_max: "Largest step",
    running_max: "Sequences at once, at most",
    load_seconds: "Time to load the weights",
    version: "Version of Braid",
  },
};

const kTables = {
  capacity: {
    title: "Capacity",
    tokens: "Length of a conversation",
    resumable_conversations: "Kept to be resumed",
    running_sequences: "Running at once",
    stored_conversations: "Kept on disk",
  },
};

const kDefaultNames = {
  do_sample: "Sampling",
  temperature: "Temperature",
  top_p: "Top-p",
  top_k: "Top-k",
  min_p: "Min-p",
  repetition_penalty: "Repetition penalty",
};

// Parts of the memory. Facts that are not named here are limits, or within one of these.
const kShares = {
  weight_bytes: "Weights",
  host_weight_bytes: "Weights for the CPU",
  host_scratch_bytes: "Scratch for the CPU",
  workspace_bytes: "Workspace",
  cache_bytes: "Cache",
  cache_host_bytes: "Pages beside the cache",
  handoff_staging_bytes: "Staging of transfers",
};
const kSwitches = new Set(["prefix_cache", "do_sample"]);
const kSets = { avx2: "AVX2", avx512: "AVX-512", amx: "AMX" };

const isTokens = (key) => key === "vocabulary" || key === "tokens" || key.includes("_tokens");

// A value with its unit, which its key tells: kv_bytes_per_token, load_seconds, step_tokens_max.
export function shown(key, value) {
  if (value === null) return "not set";
  if (Array.isArray(value)) return value.join(", ");
  if (typeof value === "boolean") {
    const [yes, no] = kSwitches.has(key) ? ["on", "off"] : ["yes", "no"];
    return value ? yes : no;
  }
  if (key === "isa") return kSets[value] ?? String(value);
  if (typeof value !== "number") return String(value);
  if (/(^|_)bytes(_|$)/.test(key)) return bytes(value);
  if (/(^|_)seconds(_|$)/.test(key)) return seconds(value);
  if (isTokens(key)) return some(value, "token");
  return number(value);
}

const isGroup = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
const isTable = (value) => Array.isArray(value) && value.length > 0 && isGroup(value[0]);

// A list of objects with the same keys.
function Table({ name, rows }) {
  const { title = words(name), ...labels } = kTables[name] ?? {};
  const keys = Object.keys(rows[0]);
  return (
    <section class="card" aria-label={title}>
      <h2>{title}</h2>
      <table>
        <thead>
          <tr>{keys.map((key) => <th key={key} scope="col">{labels[key] ?? words(key)}</th>)}</tr>
        </thead>
        <tbody>
          {rows.map((row, index) => (
            <tr key={index}>
              {keys.map((key, column) => (column === 0
                ? <th key={key} scope="row">{shown(key, row[key])}</th>
                : <td key={key}>{shown(key, row[key])}</td>))}
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

// rows: [key, label, value]
function Facts({ title, rows }) {
  if (rows.length === 0) return null;
  return (
    <section class="card" aria-label={title}>
      <h2>{title}</h2>
      <dl class="facts">
        {rows.map(([key, label, value]) => (
          <div key={key}>
            <dt>{label}</dt>
            <dd>{shown(key, value)}</dd>
          </div>
        ))}
      </dl>
    </section>
  );
}

const rowsOf = (labels, values) => Object.keys(labels)
  .filter((key) => values[key] !== undefined)
  .map((key) => [key, labels[key], values[key]]);

// Shares of the memory as one bar.
function MemoryBar({ values }) {
  const parts = Object.entries(kShares)
    .filter(([key]) => values[key] > 0)
    .map(([key, label]) => [key, label, values[key]]);
  const all = parts.reduce((sum, [, , value]) => sum + value, 0);
  if (parts.length < 2) return null;
  return (
    <section class="card wide" aria-label="Memory plan">
      <h2>Memory plan</h2>
      <div class="shares" data-testid="memory-bar" role="img"
        aria-label={parts.map(([, label, value]) => `${label} ${bytes(value)}`).join(", ")}>
        {parts.map(([key, , value], index) => (
          <i key={key} class={`share share-${index % 5}`}
            style={{ flexGrow: Math.max(value / all, 0.01) }} />
        ))}
      </div>
      <ul class="legend">
        {parts.map(([key, label, value], index) => (
          <li key={key}>
            <i class={`share share-${index % 5}`} />
            {label} <strong>{bytes(value)}</strong>
          </li>
        ))}
      </ul>
    </section>
  );
}

export function Model({ server }) {
  const facts = server.facts;
  if (!facts) return <p class="note center">The server has not described its model yet.</p>;
  const { generation_defaults: defaults = {}, ...others } = facts;
  const known = new Set(Object.values(kCards).flatMap(Object.keys));
  const entries = Object.entries(others).filter(([key]) => !kElsewhere.has(key));
  const rest = entries.filter(([key, value]) =>
    !known.has(key) && !isGroup(value) && !isTable(value) && !key.endsWith("_bytes"));
  const rows = (name) => rowsOf(kCards[name], facts);
  return (
    <div class="cards" data-testid="model">
      <MemoryBar values={facts} />
      <div class="stack">
        <Facts title={server.model?.id ?? "Model"} rows={rows("Model")} />
        <Facts title="Engine" rows={rows("Engine")} />
      </div>
      <div class="stack">
        <Facts title="Cache" rows={rows("Cache")} />
        {entries.filter(([, value]) => isTable(value)).map(([key, list]) => (
          <Table key={key} name={key} rows={list} />
        ))}
        <Facts title="Defaults for requests" rows={rowsOf(kDefaultNames, defaults)} />
        {entries.filter(([, value]) => isGroup(value)).map(([key, group]) => (
          <Facts key={key} title={words(key)}
            rows={Object.entries(group).map(([name, value]) => [name, words(name), value])} />
        ))}
        <Facts title="More" rows={rest.map(([key, value]) => [key, words(key), value])} />
      </div>
    </div>
  );
}
