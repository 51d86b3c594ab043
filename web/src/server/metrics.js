// Prometheus text to the few numbers that the page shows, and rates from two readings.

const kNames = {
  running: "braid:num_requests_running",
  waiting: "braid:num_requests_waiting",
  pages: "braid:kv_cache_usage_perc",
  generated: "braid:generation_tokens_total",
  prompted: "braid:prompt_tokens_total",
  looked_up: "braid:prefix_cache_queries_total",
  reused: "braid:prefix_cache_hits_total",
  expert_balance: "braid:expert_balance",
  tier_hits: "braid:tier_hits_total",
  tier_read: "braid:tier_read_bytes_total",
  tier_written: "braid:tier_written_bytes_total",
  tier_failures: "braid:tier_failures_total",
  tier_unwritten: "braid:tier_unwritten_total",
};

const kHistograms = {
  queue: "braid:request_queue_time_seconds",
  first_token: "braid:time_to_first_token_seconds",
  between_tokens: "braid:inter_token_latency_seconds",
  whole: "braid:e2e_request_latency_seconds",
};

// Every sample as {name, labels, value}. Values of labels hold no quotes.
function parseSamples(text) {
  const samples = [];
  for (const line of text.split("\n")) {
    const match = /^([\w:]+)(?:\{(.*)\})?\s+(\S+)/.exec(line);
    if (!match) continue;
    const labels = {};
    for (const [, key, value] of (match[2] ?? "").matchAll(/(\w+)="([^"]*)"/g)) labels[key] = value;
    samples.push({ name: match[1], labels, value: Number(match[3]) });
  }
  return samples;
}

// The value below which a part of all observations lies, interpolated within its bucket. In the
// first bucket only its upper bound is known: {below: 0.3}.
export function quantile({ bounds, counts }, part) {
  const total = counts.at(-1) ?? 0;
  if (total === 0) return undefined;
  const index = counts.findIndex((count) => count >= part * total);
  if (index === 0) return { below: bounds[0] };
  const below = index > 0 ? counts[index - 1] : 0;
  const from = index > 0 ? bounds[index - 1] : 0;
  const to = Number.isFinite(bounds[index]) ? bounds[index] : from;
  const inside = counts[index] - below;
  return inside > 0 ? from + ((to - from) * (part * total - below)) / inside : to;
}

function histogram(samples, name) {
  const buckets = samples
    .filter((sample) => sample.name === `${name}_bucket`)
    .map(({ labels, value }) => [labels.le === "+Inf" ? Infinity : Number(labels.le), value])
    .sort(([a], [b]) => a - b);
  return { bounds: buckets.map(([bound]) => bound), counts: buckets.map(([, count]) => count) };
}

// {used: 3, cached: 5, …}: the values of one metric by one of its labels.
function byLabel(samples, name, label) {
  const values = {};
  for (const sample of samples) {
    if (sample.name === name) values[sample.labels[label]] = sample.value;
  }
  return values;
}

// Sums the samples of each name over their labels; a name that is absent stays undefined. The pages
// come by their state as well: {used, cached, free}, {} when the server does not tell.
export function parseMetrics(text) {
  const samples = parseSamples(text);
  const sums = new Map();
  for (const { name, value } of samples) sums.set(name, (sums.get(name) ?? 0) + value);
  const values = {};
  for (const [key, name] of Object.entries(kNames)) values[key] = sums.get(name);
  values.pages_by_state = byLabel(samples, "braid:cache_pages", "state");
  values.finished = byLabel(samples, "braid:request_success_total", "finished_reason");
  values.reuse_stops = byLabel(samples, "braid:prefix_reuse_stops_total", "reason");
  values.lost_tokens = byLabel(samples, "braid:prefix_reuse_lost_tokens_total", "reason");
  values.tier_parts = byLabel(samples, "braid:tier_parts", "tier");
  values.tier_waits = byLabel(samples, "braid:tier_waits_total", "tier");
  values.tier_wait = byLabel(samples, "braid:tier_wait_seconds_total", "tier");
  values.blocks = samples
    .filter(({ name }) => name === "braid:cache_blocks")
    .map(({ labels, value }) => ({ group: labels.group, state: labels.state, value }));
  values.times = {};
  for (const [key, name] of Object.entries(kHistograms)) {
    values.times[key] = histogram(samples, name);
  }
  return values;
}

// Units a second. A counter that went back belongs to a server that started anew.
export function rateBetween(before, after, seconds) {
  return after >= before && seconds > 0 ? (after - before) / seconds : 0;
}
