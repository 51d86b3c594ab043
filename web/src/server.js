// What the page knows of the server, read once a second while the page is visible.
//
// phase: "connecting" at first, "loading" while /ready says no, "ready", or "unreachable".
import { useEffect, useState } from "preact/hooks";
import { parseMetrics, rateBetween } from "./metrics.js";

const kPeriod = 1000;
const kHistory = 60;

const kStart = {
  phase: "connecting",
  note: "",
  model: null,
  facts: null,
  metrics: {},
  generation_rate: 0,
  prompt_rate: 0,
  history: [],
};

const getJson = async (path) => {
  const response = await fetch(path, { cache: "no-store" });
  return response.ok ? response.json() : null;
};

// Asks /ready and, at the first yes, who is there.
async function readPhase(state) {
  const response = await fetch("ready", { cache: "no-store" });
  if (response.status === 503) {
    const body = await response.json().catch(() => ({}));
    const note = body.error?.message ?? body.message ?? body.status ?? "";
    return { ...state, phase: "loading", note: String(note) };
  }
  const [models, facts] = await Promise.all([getJson("v1/models"), getJson("server_info")]);
  return { ...state, phase: "ready", note: "", model: models?.data?.[0] ?? null, facts };
}

async function readMetrics(state, clock) {
  const response = await fetch("metrics", { cache: "no-store" });
  const now = performance.now();
  if (!response.ok) return state;
  const metrics = parseMetrics(await response.text());
  const seconds = (now - (clock.at ?? now)) / 1000;
  clock.at = now;
  const generation_rate = rateBetween(state.metrics.generated, metrics.generated, seconds);
  const prompt_rate = rateBetween(state.metrics.prompted, metrics.prompted, seconds);
  const history = [...state.history, generation_rate].slice(-kHistory);
  return { ...state, metrics, generation_rate, prompt_rate, history };
}

export function useServer() {
  const [state, setState] = useState(kStart);
  useEffect(() => {
    const clock = {};
    let current = kStart;
    let timer = null;
    const step = async () => {
      if (!document.hidden) {
        try {
          if (current.phase !== "ready") current = await readPhase(current);
          if (current.phase === "ready") current = await readMetrics(current, clock);
        } catch {
          current = { ...current, phase: "unreachable" };
        }
        setState(current);
      }
      timer = setTimeout(step, kPeriod);
    };
    step();
    return () => clearTimeout(timer);
  }, []);
  return state;
}
