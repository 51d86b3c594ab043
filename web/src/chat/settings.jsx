// The drawer of settings: how to sample, where to stop, the system prompt, and what is stored.
import { useState } from "preact/hooks";
import { resetEverything, saveEverything } from "../base/boundary.jsx";
import { Dialog } from "../base/dialog.jsx";
import { access, forgetKey } from "../base/http.js";
import { number } from "../base/format.js";
import { useStore } from "../base/store.js";
import { say } from "../base/toast.jsx";
import { history } from "./history.js";
import { kDefaults, kOptions } from "./options.js";

const kGroups = [...new Set(kOptions.map(({ group }) => group))];

function Field({ option, value, standard, onInput }) {
  const { name, label, hint, empty, min, max, step } = option;
  return (
    <label class="field">
      <span>{label}</span>
      <input type="number" inputMode="decimal" min={min} max={max} step={step} value={value}
        onInput={onInput} placeholder={Number.isFinite(standard) ? number(standard) : empty}
        data-testid={`setting-${name}`} />
      <small>{hint}</small>
    </label>
  );
}

function Area({ name, label, hint, value, onInput, rows, placeholder }) {
  return (
    <label class="field wide">
      <span>{label}</span>
      <textarea rows={rows} value={value} onInput={onInput} placeholder={placeholder}
        data-testid={`setting-${name}`} />
      {hint && <small>{hint}</small>}
    </label>
  );
}

function Stored({ onClose }) {
  const { conversations, unreadable } = useStore(history);
  const { key } = useStore(access);
  const [sure, setSure] = useState(false);
  const reset = async () => {
    if (!sure) {
      setSure(true);
      return;
    }
    await resetEverything();
    setSure(false);
    say("All stored data was deleted.");
  };
  const forget = () => {
    onClose();  // the page asks for another key at once
    forgetKey();
  };
  return (
    <fieldset>
      <legend>Stored in this browser</legend>
      <p class="note">
        {conversations.size === 1 ? "1 conversation" : `${conversations.size} conversations`}
        {unreadable > 0 && `, and ${unreadable} that cannot be read`}.
      </p>
      <div class="actions">
        <button type="button" class="plain" onClick={saveEverything} data-testid="export-all">
          Export all
        </button>
        <button type="button" class="plain danger" onClick={reset} data-testid="reset-all">
          {sure ? "Really delete all?" : "Delete all"}
        </button>
        {key && (
          <button type="button" class="plain" onClick={forget} data-testid="forget-key">
            Forget the API key
          </button>
        )}
      </div>
    </fieldset>
  );
}

export function Settings({ options, onChange, server, onClose }) {
  const set = (name) => (event) => onChange({ ...options, [name]: event.target.value });
  const standard = (name) => server.facts?.generation_defaults?.[name];
  const restore = () => onChange({ ...kDefaults, thinking: options.thinking });
  return (
    <Dialog title="Settings" kind="drawer" onClose={onClose} testid="settings">
      <Area name="system" label="System prompt" rows={3} value={options.system}
        onInput={set("system")} placeholder="None" />
      {kGroups.map((group) => (
        <fieldset key={group}>
          <legend>{group}</legend>
          <div class="grid">
            {kOptions.filter((option) => option.group === group).map((option) => (
              <Field key={option.name} option={option} value={options[option.name]}
                standard={standard(option.name)} onInput={set(option.name)} />
            ))}
          </div>
        </fieldset>
      ))}
      <Area name="stop" label="Stop strings" rows={2} value={options.stop} onInput={set("stop")}
        placeholder="None" hint="One a line; the answer ends before it. \n is a line break." />
      <button type="button" class="plain start" onClick={restore} data-testid="restore-defaults">
        Restore defaults
      </button>
      <Stored onClose={onClose} />
    </Dialog>
  );
}
