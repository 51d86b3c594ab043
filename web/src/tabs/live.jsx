// The Live tab: who is being answered and how far, latencies, the cache, why prompts were computed.
import { useEffect, useState } from "preact/hooks";
import { bytes, count, percent, seconds, some, words } from "../base/format.js";
import { askJson } from "../base/http.js";
import { quantile } from "../server/metrics.js";
import { Experts } from "./experts.jsx";

const kPeriod = 1000;

const kTimes = [
  ["queue", "Time in the queue"],
  ["first_token", "Time to the first token"],
  ["between_tokens", "Time between tokens"],
  ["whole", "Whole answer"],
];

const kReasons = {
  complete: "The last tokens of a prompt are always recomputed",
  never_seen: "New text: no stored prefix continues this way",
  evicted: "Stored before, but evicted to make room",
  no_snapshot: "Keys and values were stored, but no recurrent state at that point",
  off: "The prefix cache was not used",
};

const kEnds = {
  stop: "Finished",
  length: "Reached the token limit",
  tool_calls: "Called a tool",
  abort: "Cancelled",
  error: "Failed",
};

const kPhases = { waiting: "queued", prefill: "reading", decode: "answering" };

const described = (error) =>
  (error instanceof TypeError ? "The server cannot be reached." : error.message);

// The list of /v1/running while the tab is shown; null before the first answer.
function useRunning(ready) {
  const [state, setState] = useState({ requests: null, problem: "" });
  useEffect(() => {
    if (!ready) return undefined;
    let timer = null;
    let over = false;
    const step = async () => {
      try {
        setState({ requests: (await askJson("v1/running")).data, problem: "" });
      } catch (error) {
        setState({ requests: [], problem: described(error) });
      }
      if (!over) timer = setTimeout(step, kPeriod);
    };
    step();
    return () => {
      over = true;
      clearTimeout(timer);
    };
  }, [ready]);
  return state;
}

// What is wrong, or "".
async function endRequest(id) {
  try {
    await askJson("abort_request", { json: { rid: id } });
    return "";
  } catch (error) {
    return described(error);
  }
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
      <span class="phase">{ending ? "ending" : kPhases[request.phase] ?? request.phase}</span>
      <div>
        <code title={request.request_id ?? undefined}>{request.id}</code>
        <small>
          {count(request.prompt_tokens)} prompt tokens{reused} ·{" "}
          {some(request.output_tokens, "output token")} · {seconds(request.total_ms / 1000)}
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
        !problem && <p class="note" data-testid="nothing-runs">No request is running.</p>
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
          <tr>
            <th scope="col">Since the server started</th>
            <th scope="col" title="Half of the requests were faster">Median</th>
            <th scope="col" title="95 of 100 requests were faster">95 %</th>
            <th scope="col" title="99 of 100 requests were faster">99 %</th>
          </tr>
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
      <Rows rows={[...rows, ...groups]} empty="The server does not report its cache." />
    </section>
  );
}

// Of the tiers below the cache: a disk, memory beside the cache, or both. A server without tiers
// reports zeros.
function Tiers({ metrics }) {
  const { tier_parts: parts = {}, tier_written: written = 0, tier_read: read = 0 } = metrics;
  const known = (parts.disk ?? 0) + (parts.host ?? 0);
  if (known + written + read === 0) return null;
  const disk = parts.disk !== undefined;
  const where = disk ? "on disk" : "in memory beside the cache";
  const generated = metrics.generated ?? 0;
  const rows = [
    [`Parts of pages ${where}`, count(known)],
    ["Prompt tokens restored", count(metrics.tier_hits ?? 0)],
    ["Read", bytes(read)],
  ];
  if (disk) {
    rows.push(["Written", bytes(written)]);
    const each = generated > 0 ? bytes(written / generated) : "–";
    rows.push(["Written for each generated token", each]);
  }
  if (metrics.tier_unwritten > 0) {
    rows.push(["Prefixes evicted before they were written", count(metrics.tier_unwritten)]);
  }
  for (const [tier, name] of [["disk", "the disk"], ["host", "memory beside the cache"]]) {
    const waits = metrics.tier_waits?.[tier] ?? 0;
    if (waits === 0) continue;
    const mean = seconds(metrics.tier_wait[tier] / waits);
    rows.push([`Prompts that waited for ${name}`, `${count(waits)}, ${mean} each`]);
  }
  if (metrics.tier_failures > 0) rows.push(["Parts that failed", count(metrics.tier_failures)]);
  return (
    <section class="card" aria-label={`Conversations ${where}`} data-testid="tiers">
      <h2>Conversations {where}</h2>
      <Rows rows={rows} />
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
    <section class="card" aria-label="Prompt reuse">
      <h2>Prompt reuse</h2>
      {rows.length > 0 && <p class="note">
        {percent(share)} of {count(metrics.looked_up)} prompt tokens came from the cache. The rest was
        computed for these reasons:
      </p>}
      <Rows rows={rows} empty="No prompt has been read yet." />
    </section>
  );
}

function Ends({ metrics }) {
  const rows = Object.entries(metrics.finished ?? {}).map(([reason, value]) =>
    [kEnds[reason] ?? words(reason), count(value)]);
  return (
    <section class="card" aria-label="How answers ended">
      <h2>How answers ended</h2>
      <Rows rows={rows} empty="No answer has ended yet." />
    </section>
  );
}

export function Live({ server }) {
  return (
    <div class="cards" data-testid="live">
      <Running ready={server.phase === "ready"} />
      <Latencies times={server.metrics.times} />
      <Cache metrics={server.metrics} />
      <Tiers metrics={server.metrics} />
      <Reuse metrics={server.metrics} />
      <Ends metrics={server.metrics} />
      <Experts shown={server.metrics.expert_balance !== undefined} />
    </div>
  );
}
