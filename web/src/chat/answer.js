// One answer while it grows: adds the deltas up and keeps the times of the first and last token.
import { streamChat } from "./stream.js";
import { emptyAnswer } from "./conversation.js";

// The page shows the first token at once and then what has come at most this often, ms.
const kShowEvery = 40;

// An answer that arrives in less time than this may have come in one piece, ms.
const kOnePiece = 100;

// Without usage (an answer that was stopped) the number of deltas stands for the tokens. The rate
// is that between the first and the last token; tokens that came in one piece say nothing of the
// time between them, so there the time since the request counts, which never flatters.
function statsOf({ start, first, last, deltas, usage }) {
  if (!first) return undefined;
  const tokens = usage?.completion_tokens ?? deltas;
  const spread = last - first;
  const per_ms = spread >= kOnePiece ? (tokens - 1) / spread : tokens / Math.max(last - start, 1);
  const stats = { first_token_ms: first - start, tokens, tokens_per_second: per_ms * 1000 };
  if (usage?.prompt_tokens === undefined) return stats;
  const cached = usage.prompt_tokens_details?.cached_tokens ?? 0;
  return { ...stats, prompt_tokens: usage.prompt_tokens, cached_tokens: cached };
}

// A call's first delta has its id and name, later ones pieces of its arguments.
function addCalls(calls, deltas) {
  for (const delta of deltas) {
    const call = (calls[delta.index] ??= { id: "", name: "", arguments: "" });
    call.id ||= delta.id ?? "";
    call.name ||= delta.function?.name ?? "";
    call.arguments += delta.function?.arguments ?? "";
  }
}

function add(answer, event) {
  if (event.finish) answer.finish = event.finish;
  answer.reasoning += event.reasoning ?? "";
  answer.content += event.content ?? "";
  if (event.calls) addCalls((answer.calls ??= []), event.calls);
}

// Runs one request and calls show(answer) with a fresh copy now and then and at the end. Never
// throws: what went wrong becomes part of the answer, which is returned as well.
export async function runAnswer(request, signal, show) {
  const answer = emptyAnswer();
  const times = { start: performance.now(), deltas: 0 };
  let timer = null;
  let shown = 0;
  const present = () => {
    timer = null;
    shown = performance.now();
    const calls = answer.calls?.map((call) => ({ ...call }));
    const now = { ...answer, stats: statsOf(times), ...(calls && { calls }) };
    show(now);
    return now;
  };
  try {
    await streamChat(request, signal, (event) => {
      if (event.usage) times.usage = event.usage;
      add(answer, event);
      if (!event.reasoning && !event.content && !event.calls) return;
      times.last = performance.now();
      times.first ??= times.last;
      times.deltas += 1;
      if (times.last - shown >= kShowEvery && timer === null) present();
      else timer ??= setTimeout(present, kShowEvery - (times.last - shown));
    });
    answer.status = "done";
  } catch (error) {
    answer.status = signal.aborted ? "stopped" : "failed";
    if (!signal.aborted) answer.error = describe(error);
  }
  clearTimeout(timer);
  return present();
}

function describe(error) {
  if (error instanceof TypeError) return { message: "The server cannot be reached." };
  return { message: error.message, status: error.status, param: error.param };
}
