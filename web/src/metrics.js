// Prometheus text to the few numbers that the page shows, and rates from two readings.

const kNames = {
  running: "braid:num_requests_running",
  waiting: "braid:num_requests_waiting",
  pages: "braid:kv_cache_usage_perc",
  generated: "braid:generation_tokens_total",
  prompted: "braid:prompt_tokens_total",
  looked_up: "braid:prefix_cache_queries_total",
  reused: "braid:prefix_cache_hits_total",
};

// Sums the samples of each name over their labels; a name that is absent stays undefined. The pages
// come by their state as well: {used, cached, free}, {} when the server does not tell.
export function parseMetrics(text) {
  const sums = new Map();
  const pages_by_state = {};
  for (const line of text.split("\n")) {
    const match = /^([\w:]+)(?:\{.*\})?\s+(\S+)/.exec(line);
    if (!match) continue;
    sums.set(match[1], (sums.get(match[1]) ?? 0) + Number(match[2]));
    const state = /^braid:cache_pages\{.*state="(\w+)"/.exec(line);
    if (state) pages_by_state[state[1]] = Number(match[2]);
  }
  const values = { pages_by_state };
  for (const [key, name] of Object.entries(kNames)) values[key] = sums.get(name);
  return values;
}

// Units a second. A counter that went back belongs to a server that started anew.
export function rateBetween(before, after, seconds) {
  return after >= before && seconds > 0 ? (after - before) / seconds : 0;
}
