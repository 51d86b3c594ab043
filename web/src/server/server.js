// What the page knows of the server, read once a second while the page is visible.
//
// phase: "connecting" at first, "loading" while /ready says no, "locked" while an API key is
// missing, "ready", or "unreachable".
import { useEffect, useState } from "preact/hooks";
import { access, ask, askJson } from "../base/http.js";
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

// Asks /ready and, at the first yes, who is there.
async function readPhase(state) {
  const response = await fetch("ready", { cache: "no-store" });
  if (response.status === 503) {
    const body = await response.json().catch(() => ({}));
    const note = body.error?.message ?? body.message ?? body.status ?? "";
    return { ...state, phase: "loading", note: String(note) };
  }
  const models = await ask("v1/models");
  if (models.status === 401) return { ...state, phase: "locked", note: "" };
  const model = models.ok ? (await models.json()).data?.[0] ?? null : null;
  const facts = await askJson("server_info").catch(() => null);
  return { ...state, phase: "ready", note: "", model, facts };
}

async function readMetrics(state, clock) {
  const response = await ask("metrics");
  const now = performance.now();
  if (response.status === 401) return { ...state, phase: "locked" };
  if (!response.ok) return state;
  const metrics = parseMetrics(await response.text());
  const seconds = (now - (clock.at ?? now)) / 1000;
  clock.at = now;
  const generation_rate = rateBetween(state.metrics.generated, metrics.generated, seconds);
  const prompt_rate = rateBetween(state.metrics.prompted, metrics.prompted, seconds);
  const history = [...state.history, generation_rate].slice(-kHistory);
  return { ...state, metrics, generation_rate, prompt_rate, history };
}

// A key that was refused is not sent again and again: the server would hold this address off.
async function next(state, clock) {
  if (state.phase === "locked" && access.state.needed) return state;
  const current = state.phase === "ready" ? state : await readPhase(state);
  return current.phase === "ready" ? readMetrics(current, clock) : current;
}

export function useServer() {
  const [state, setState] = useState(kStart);
  useEffect(() => {
    const clock = {};
    let current = kStart;
    let timer = null;
    let stepping = false;
    const step = async () => {
      clearTimeout(timer);
      if (stepping) return;
      stepping = true;
      if (!document.hidden) {
        try {
          current = await next(current, clock);
        } catch {
          current = { ...current, phase: "unreachable" };
        }
        setState(current);
      }
      stepping = false;
      timer = setTimeout(step, kPeriod);
    };
    step();
    const stop = access.subscribe(() => !access.state.needed && step());
    return () => {
      stop();
      clearTimeout(timer);
    };
  }, []);
  return state;
}
