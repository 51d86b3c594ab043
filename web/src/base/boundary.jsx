// What is shown when drawing the page fails: never a blank page. Stored data is the likeliest
// cause, so it can be saved to a file and deleted here.
import { Component } from "preact";
import { useState } from "preact/hooks";
import { exportEverything, history } from "../chat/history.js";
import { datedName, download } from "./download.js";
import { forget, kPrefix, rawValues } from "./storage.js";

export const saveEverything = async () =>
  download(datedName("stored-data"), await exportEverything(rawValues()));

export async function resetEverything() {
  for (const key of Object.keys(rawValues())) forget(key.slice(kPrefix.length));
  await history.reset();
}

function Recovery({ error, onRetry }) {
  const [sure, setSure] = useState(false);
  const reset = async () => {
    if (!sure) {
      setSure(true);
      return;
    }
    await resetEverything();
    location.replace(location.pathname);
  };
  return (
    <main class="recovery" role="alert" data-testid="recovery">
      <h1>The page could not be shown</h1>
      <p>
        An error stopped it. Your conversations are still stored in this browser. If trying again
        does not help, save them to a file, then reset the stored data.
      </p>
      <pre tabIndex={0}>{String(error?.message ?? error)}</pre>
      <div class="actions">
        <button type="button" class="strong" onClick={onRetry} data-testid="recovery-retry">
          Try again
        </button>
        <button type="button" class="plain" onClick={saveEverything} data-testid="recovery-export">
          Export stored data
        </button>
        <button type="button" class="plain danger" onClick={reset} data-testid="recovery-reset">
          {sure ? "Delete everything stored here?" : "Reset stored data"}
        </button>
      </div>
    </main>
  );
}

export class Boundary extends Component {
  static getDerivedStateFromError = (error) => ({ error });

  render({ children }, { error }) {
    if (error === undefined || error === null) return children;
    return <Recovery error={error} onRetry={() => this.setState({ error: null })} />;
  }
}
