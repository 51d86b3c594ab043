// What both halves of the playground use.
import { useRef } from "preact/hooks";
import { highlight } from "../chat/highlight.js";
import { cleaned } from "../chat/markdown.js";
import { CodeBlock, elementsOf } from "../chat/markup.jsx";
import { Icon } from "../base/icons.jsx";

export function Json({ value, language = "json" }) {
  const text = typeof value === "string" ? value : JSON.stringify(value, null, 2);
  const html = highlight(text, "json");
  return (
    <CodeBlock language={language} text={text}>
      {html === null ? text : elementsOf(cleaned(html))}
    </CodeBlock>
  );
}

// A field for JSON. Tab stays the key that leaves it; what is wrong is said below.
export function JsonField({ label, value, onInput, problem, rows, testid }) {
  return (
    <label class="field wide">
      <span>{label}</span>
      <textarea class="mono" rows={rows} value={value} spellcheck={false} autocomplete="off"
        onInput={(event) => onInput(event.target.value)} aria-invalid={Boolean(problem)}
        data-testid={testid} />
      <small class="bad" role="alert" data-testid={`${testid}-problem`}>{problem}</small>
    </label>
  );
}

export function Question({ value, onInput, testid }) {
  return (
    <label class="field wide">
      <span>Question</span>
      <textarea rows={3} value={value} onInput={(event) => onInput(event.target.value)}
        data-testid={testid} />
    </label>
  );
}

// Whether a value keeps to its schema, with what does not.
export function Verdict({ problems, good = "Matches the schema" }) {
  if (problems.length === 0) {
    return (
      <p class="verdict good" role="status" data-testid="verdict">
        <Icon name="check" />
        {good}
      </p>
    );
  }
  return (
    <div class="verdict bad" role="status" data-testid="verdict">
      <Icon name="cross" />
      <ul>{problems.map((problem) => <li key={problem}>{problem}</li>)}</ul>
    </div>
  );
}

export function RunButton({ busy, can, onRun, onStop, label = "Run" }) {
  return busy ? (
    <button type="button" class="strong" onClick={onStop} data-testid="play-stop">Stop</button>
  ) : (
    <button type="button" class="strong" disabled={!can} onClick={onRun} data-testid="play-run"
      title="Ctrl+Enter">
      {label}
    </button>
  );
}

// Ctrl+Enter anywhere in a form runs it.
export const runKeys = (can, run) => (event) => {
  if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
  event.preventDefault();
  if (can) run();
};

// The request, for those who want to send it from elsewhere. The page adds only that it streams.
export function Sent({ request }) {
  if (!request) return null;
  return (
    <details class="sent">
      <summary>The request to /v1/chat/completions</summary>
      <Json value={request} />
    </details>
  );
}

// One growing answer at a time: begin() gives its signal, stop() ends it.
export function useRunner() {
  const abort = useRef(null);
  return {
    begin: () => {
      abort.current = new AbortController();
      return abort.current.signal;
    },
    stop: () => abort.current?.abort(),
  };
}
