// The Model tab: what the server says about the model and how it has laid out its memory.
import { bytes, count, words } from "./format.js";

// What changes from second to second stands in the strip; limits are for those who send requests.
const kLive = new Set(["scheduler", "limits"]);

function shown(key, value) {
  if (value === null) return "–";
  if (Array.isArray(value)) return value.join(", ");
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value !== "number") return String(value);
  if (key.endsWith("bytes")) return bytes(value);
  return Number.isInteger(value) ? count(value) : value.toPrecision(4);
}

const isGroup = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
const isTable = (value) => Array.isArray(value) && value.length > 0 && isGroup(value[0]);

// A list of objects with the same keys.
function Table({ title, rows }) {
  const keys = Object.keys(rows[0]);
  return (
    <section class="card" aria-label={title}>
      <h2>{title}</h2>
      <table>
        <thead>
          <tr>{keys.map((key) => <th key={key} scope="col">{words(key)}</th>)}</tr>
        </thead>
        <tbody>
          {rows.map((row, index) => (
            <tr key={index}>{keys.map((key) => <td key={key}>{shown(key, row[key])}</td>)}</tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

function Facts({ title, values }) {
  const rows = Object.entries(values).filter(
    ([key, value]) => !isGroup(value) && !isTable(value) && !key.endsWith("_bytes"));
  if (rows.length === 0) return null;
  return (
    <section class="card" aria-label={title}>
      <h2>{title}</h2>
      <dl class="facts">
        {rows.map(([key, value]) => (
          <div key={key}>
            <dt>{words(key)}</dt>
            <dd>{shown(key, value)}</dd>
          </div>
        ))}
      </dl>
    </section>
  );
}

// Shares of the memory as one bar: everything that is counted in bytes.
function MemoryBar({ values }) {
  const parts = Object.entries(values).filter(([key, value]) => key.endsWith("_bytes") && value > 0);
  const all = parts.reduce((sum, [, value]) => sum + value, 0);
  if (parts.length < 2) return null;
  return (
    <section class="card wide" aria-label="Memory plan">
      <h2>Memory plan</h2>
      <div class="shares" data-testid="memory-bar" role="img"
        aria-label={parts.map(([key, value]) => `${words(key)} ${bytes(value)}`).join(", ")}>
        {parts.map(([key, value], index) => (
          <i key={key} class={`share share-${index % 5}`}
            style={{ flexGrow: Math.max(value / all, 0.01) }} />
        ))}
      </div>
      <ul class="legend">
        {parts.map(([key, value], index) => (
          <li key={key}>
            <i class={`share share-${index % 5}`} />
            {words(key)} <strong>{bytes(value)}</strong>
          </li>
        ))}
      </ul>
    </section>
  );
}

export function Model({ server }) {
  const facts = server.facts;
  if (!facts) return <p class="note center">The server has not told yet.</p>;
  const entries = Object.entries(facts).filter(([key]) => !kLive.has(key));
  const title = (key) => words(key)[0].toUpperCase() + words(key).slice(1);
  return (
    <div class="cards" data-testid="model">
      <MemoryBar values={facts} />
      <Facts title={server.model?.id ?? "Model"} values={facts} />
      <div class="stack">
        {entries.filter(([, value]) => isTable(value)).map(([key, rows]) => (
          <Table key={key} title={title(key)} rows={rows} />
        ))}
        {entries.filter(([, value]) => isGroup(value)).map(([key, values]) => (
          <Facts key={key} title={title(key)} values={values} />
        ))}
      </div>
    </div>
  );
}
