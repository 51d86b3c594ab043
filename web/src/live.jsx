// The Live tab: who is being answered and how far, latencies, the cache, why prompts were computed.
import { useEffect, useState } from "preact/hooks";
import { count, percent, seconds, some, words } from "./format.js";
import { quantile } from "./metrics.js";

const kPeriod = 1000;

const kTimes = [
  ["queue", "Waiting for its turn"],
  ["first_token", "To the first token"],
  ["between_tokens", "Between tokens"],
  ["whole", "Whole request"],
];

const kReasons = {
  complete: "The end of a prompt always is",
  never_seen: "No stored prefix goes on so: new text",
  evicted: "It was stored, and evicted for others",
  no_snapshot: "Keys were stored, the state at that point was not",
  off: "Nothing was looked up",
};

// The list of /v1/running while the tab is shown; null before the first answer.
function useRunning(ready) {
  const [state, setState] = useState({ requests: null, problem: "" });
  useEffect(() => {
    if (!ready) return undefined;
    let timer = null;
    const step = async () => {
      try {
        const response = await fetch("v1/running", { cache: "no-store" });
        const body = await response.json();
        setState(response.ok ? { requests: body.data, problem: "" }
          : { requests: [], problem: body.error.message });
      } catch {
        setState({ requests: [], problem: "The server does not answer." });
      }
      timer = setTimeout(step, kPeriod);
    };
    step();
    return () => clearTimeout(timer);
  }, [ready]);
  return state;
}

async function endRequest(id) {
  const response = await fetch("abort_request", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ rid: id }),
  });
  if (response.ok) return "";
  const body = await response.json().catch(() => null);
  return body?.error?.message ?? `The server answered ${response.status}.`;
}

function Request({ request, onProblem }) {
  const [ending, setEnding] = useState(false);
  const end = async () => {
    setEnding(true);
    const problem = await endRequest(request.id);
    onProblem(problem);
    if (problem) setEnding(false);
  };
  const reused = request.cached_tokens > 0 ? `, ${count(request.cached_tokens)} reused` : "";
  return (
    <li class="request" data-testid="running-request" data-phase={request.phase}>
      <span class="phase">{ending ? "ending" : request.phase}</span>
      <div>
        <code title={request.request_id ?? undefined}>{request.id}</code>
        <small>
          {count(request.prompt_tokens)} prompt tokens{reused} · {count(request.output_tokens)} out
          · {seconds(request.total_ms / 1000)}
        </small>
      </div>
      <button type="button" class="plain" disabled={ending} onClick={end}
        aria-label={`Cancel ${request.id}`} data-testid="cancel-request">
        Cancel
      </button>
    </li>
  );
}

function Running({ ready }) {
  const { requests, problem } = useRunning(ready);
  const [refusal, setRefusal] = useState("");
  const said = problem || refusal;
  return (
    <section class="card wide" aria-label="Running requests">
      <h2>Running requests</h2>
      {said && <p class="note bad" role="alert">{said}</p>}
      {requests?.length > 0 ? (
        <ul class="requests">
          {requests.map((request) => (
            <Request key={request.id} request={request} onProblem={setRefusal} />
          ))}
        </ul>
      ) : (
        !problem && <p class="note" data-testid="nothing-runs">Nothing runs at the moment.</p>
      )}
    </section>
  );
}

function Latencies({ times }) {
  return (
    <section class="card" aria-label="Latencies">
      <h2>Latencies</h2>
      <table data-testid="latencies">
        <thead>
          <tr><th scope="col">since the start</th><th>p50</th><th>p95</th><th>p99</th></tr>
        </thead>
        <tbody>
          {kTimes.map(([key, label]) => (
            <tr key={key}>
              <th scope="row">{label}</th>
              {[0.5, 0.95, 0.99].map((part) => (
                <td key={part}>{times?.[key] ? seconds(quantile(times[key], part)) : "–"}</td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

function Rows({ rows, empty }) {
  if (rows.length === 0) return <p class="note">{empty}</p>;
  return (
    <dl class="facts">
      {rows.map(([label, value]) => (
        <div key={label}>
          <dt>{label}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

function Cache({ metrics }) {
  const { used = 0, cached = 0, free = 0 } = metrics.pages_by_state ?? {};
  const all = used + cached + free;
  const share = (value) => `${count(value)} · ${percent(all > 0 ? value / all : undefined)}`;
  const rows = all > 0 ? [["Pages in use", share(used)], ["Pages cached for later", share(cached)],
    ["Pages free", share(free)]] : [];
  const groups = (metrics.blocks ?? []).map(({ group, state, value }) =>
    [`${group === "state" ? "Recurrent states" : "Blocks of keys and values"}, ${state}`,
      count(value)]);
  return (
    <section class="card" aria-label="Cache">
      <h2>Cache</h2>
      <Rows rows={[...rows, ...groups]} empty="The server does not tell." />
    </section>
  );
}

function Reuse({ metrics }) {
  const stops = Object.entries(metrics.reuse_stops ?? {}).filter(([, value]) => value > 0);
  const lost = metrics.lost_tokens ?? {};
  const share = metrics.looked_up > 0 ? metrics.reused / metrics.looked_up : undefined;
  const rows = stops.map(([reason, requests]) => [
    kReasons[reason] ?? words(reason),
    `${some(requests, "request")}, ${some(lost[reason] ?? 0, "token")}`,
  ]);
  return (
    <section class="card" aria-label="Reuse of prompts">
      <h2>Reuse of prompts</h2>
      <p class="note">
        {percent(share)} of {count(metrics.looked_up)} prompt tokens came from the cache. Why the rest
        was computed:
      </p>
      <Rows rows={rows} empty="No prompt yet." />
    </section>
  );
}

function Ends({ metrics }) {
  const rows = Object.entries(metrics.finished ?? {}).map(([reason, value]) =>
    [words(reason), count(value)]);
  return (
    <section class="card" aria-label="How answers ended">
      <h2>How answers ended</h2>
      <Rows rows={rows} empty="No answer yet." />
    </section>
  );
}

export function Live({ server }) {
  return (
    <div class="cards" data-testid="live">
      <Running ready={server.phase === "ready"} />
      <Latencies times={server.metrics.times} />
      <Cache metrics={server.metrics} />
      <Reuse metrics={server.metrics} />
      <Ends metrics={server.metrics} />
    </div>
  );
}
