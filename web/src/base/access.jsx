// Asks for the API key, once the server has answered 401, and says so while it is missing.
import { useState } from "preact/hooks";
import { Dialog } from "./dialog.jsx";
import { access, tryKey } from "./http.js";
import { Icon } from "./icons.jsx";
import { useStore } from "./store.js";

function KeyDialog({ onClose }) {
  const { refused } = useStore(access);
  const [key, setKey] = useState("");
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState(
    refused ? "The server no longer accepts the key of this tab." : "");
  const submit = async (event) => {
    event.preventDefault();
    if (busy || !key.trim()) return;
    setBusy(true);
    const said = await tryKey(key.trim());
    setBusy(false);
    setProblem(said);
    if (!said) onClose();
  };
  return (
    <Dialog title="API key" kind="small" onClose={onClose} testid="key-dialog">
      <form onSubmit={submit} class="key-form">
        <p id="key-why">
          This server answers only requests with an API key. It is kept for this browser tab and
          forgotten when the tab is closed.
        </p>
        <label class="field">
          <span>API key</span>
          <input type="password" autocomplete="off" spellcheck={false} value={key} data-first
            onInput={(event) => setKey(event.target.value)} aria-invalid={Boolean(problem)}
            aria-describedby="key-why key-problem" data-testid="key-field" />
        </label>
        <p class="note bad" id="key-problem" role="alert" data-testid="key-problem">{problem}</p>
        <div class="actions end">
          <button type="button" class="plain" onClick={onClose}>Not now</button>
          <button type="submit" class="strong" disabled={busy || !key.trim()}
            data-testid="key-save">
            Use this key
          </button>
        </div>
      </form>
    </Dialog>
  );
}

export function Access() {
  const { needed } = useStore(access);
  const [declined, setDeclined] = useState(false);
  if (!needed) {
    if (declined) setDeclined(false);
    return null;
  }
  if (!declined) return <KeyDialog onClose={() => setDeclined(true)} />;
  return (
    <div class="banner" role="status" data-testid="key-banner">
      <Icon name="key" />
      The server asks for an API key.
      <button type="button" class="link" onClick={() => setDeclined(false)}
        data-testid="key-open">
        Enter the key
      </button>
    </div>
  );
}
