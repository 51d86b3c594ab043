// The drawer: how to sample, the system prompt, and what the server says about itself.
import { useEffect, useRef } from "preact/hooks";
import { kDefaultSettings } from "./conversation.js";
import { Icon } from "./icons.jsx";

const kFields = [
  { name: "temperature", label: "Temperature", min: 0, max: 2, step: 0.1, hint: "0 is greedy" },
  { name: "top_p", label: "Top-p", min: 0, max: 1, step: 0.05, hint: "share of probability" },
  { name: "top_k", label: "Top-k", min: 0, step: 1, hint: "candidates" },
  { name: "max_tokens", label: "Max tokens", min: 1, step: 1, hint: "of the answer" },
  { name: "seed", label: "Seed", step: 1, hint: "same seed, same answer" },
];

// Nested objects as "outer.inner: value" rows.
function rowsOf(facts, prefix = "") {
  return Object.entries(facts ?? {}).flatMap(([key, value]) =>
    value !== null && typeof value === "object" && !Array.isArray(value)
      ? rowsOf(value, `${prefix}${key}.`)
      : [[`${prefix}${key}`, value]],
  );
}

// "memory.weights_bytes" reads "memory · weights"; the unit stands with the number.
const title = (key) => key.replace(/_bytes$/, "").replaceAll(".", " · ").replaceAll("_", " ");

function shown(key, value) {
  if (Array.isArray(value)) return value.join(", ");
  if (typeof value !== "number") return String(value);
  if (key.endsWith("bytes") && value >= 1 << 20) return `${(value / (1 << 20)).toFixed(1)} MiB`;
  return Number.isInteger(value) ? value.toLocaleString("en") : value.toPrecision(4);
}

// What changes from second to second stands in the strip, and would be out of date here.
const kLive = /^scheduler\.(running|waiting|steps|cache_pages_used)$/;

function Facts({ server }) {
  const rows = rowsOf({ model: server.model?.id, ...server.facts }).filter(
    ([key, value]) => value !== undefined && value !== null && !kLive.test(key) &&
      typeof value?.[0] !== "object",
  );
  return (
    <dl class="facts" data-testid="facts">
      {rows.map(([key, value]) => (
        <div key={key}>
          <dt>{title(key)}</dt>
          <dd>{shown(key, value)}</dd>
        </div>
      ))}
    </dl>
  );
}

export function Settings({ settings, onChange, server, onClose }) {
  const close = useRef(null);
  useEffect(() => close.current.focus(), []);
  const set = (name) => (event) => onChange({ ...settings, [name]: event.target.value });
  const model_default = (name) => server.facts?.generation_defaults?.[name];
  const reset = () => onChange({ ...kDefaultSettings, thinking: settings.thinking });
  return (
    <>
      <div class="shade" onClick={onClose} />
      <aside class="drawer" role="dialog" aria-modal="true" aria-label="Settings"
        data-testid="settings">
        <header>
          <h2>Settings</h2>
          <button type="button" class="quiet" aria-label="Close settings" onClick={onClose}
            ref={close}>
            <Icon name="close" />
          </button>
        </header>
        <label class="field wide">
          <span>System prompt</span>
          <textarea rows={3} value={settings.system} onInput={set("system")} placeholder="None"
            data-testid="setting-system" />
        </label>
        <div class="grid">
          {kFields.map(({ name, label, hint, ...range }) => (
            <label class="field" key={name}>
              <span>{label}</span>
              <input type="number" inputMode="decimal" {...range} value={settings[name]}
                onInput={set(name)} placeholder={model_default(name) ?? "default"}
                data-testid={`setting-${name}`} />
              <small>{hint}</small>
            </label>
          ))}
        </div>
        <button type="button" class="plain" onClick={reset}>Back to the defaults</button>
        <h2>Model and server</h2>
        <Facts server={server} />
      </aside>
    </>
  );
}
