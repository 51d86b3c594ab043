// One message of the conversation: the user's with an edit button, the assistant's with its
// thinking, its text, what went wrong and how fast it was.
import { useState } from "preact/hooks";
import { CopyButton } from "./copy.jsx";
import { Icon } from "./icons.jsx";
import { Markup } from "./markup.jsx";

// Open while the thinking streams, folded after; a click by the reader decides from then on.
function Thinking({ text, active }) {
  const [chosen, setChosen] = useState(null);
  const open = chosen ?? active;
  return (
    <section class="thinking" data-testid="thinking" data-open={open}>
      <button type="button" class="quiet" aria-expanded={open} onClick={() => setChosen(!open)}
        data-testid="thinking-toggle">
        <Icon name="chevron" />
        <span class={active ? "shimmer" : ""}>{active ? "Thinking…" : "Thinking"}</span>
      </button>
      {open && <div class="thought">{text.trim()}</div>}
    </section>
  );
}

function Failure({ error, onRetry }) {
  return (
    <div class="failure" role="alert" data-testid="error">
      <div>
        <strong>{error.status ? `Error ${error.status}` : "Error"}</strong>
        {error.param && <code>{error.param}</code>}
        <p>{error.message}</p>
      </div>
      {onRetry && (
        <button type="button" class="plain" onClick={onRetry} data-testid="retry">
          Try again
        </button>
      )}
    </div>
  );
}

const rounded = (value) => (value >= 100 ? value.toFixed(0) : value.toFixed(1));

const duration = (ms) => (ms < 1000 ? `${ms.toFixed(0)} ms` : `${(ms / 1000).toFixed(2)} s`);

function Stats({ message }) {
  const { stats, status, finish } = message;
  const parts = [];
  if (stats?.tokens_per_second) parts.push(`${rounded(stats.tokens_per_second)} tokens/s`);
  if (stats) parts.push(`first token ${duration(stats.first_token_ms)}`);
  if (stats) parts.push(`${stats.tokens} tokens`);
  if (status === "stopped") parts.push("stopped");
  if (finish === "length") parts.push("cut at the token limit");
  return (
    <span class="stats" data-testid="stats">
      {parts.map((part) => (
        <span key={part}>{part}</span>
      ))}
    </span>
  );
}

function Answer({ message, last, busy, onRegenerate }) {
  const streaming = message.status === "streaming";
  const waiting = streaming && !message.content && !message.reasoning;
  const retry = last && !busy ? onRegenerate : null;
  return (
    <article class="answer" data-testid="assistant-message" data-status={message.status}
      aria-label="Answer" aria-busy={streaming}>
      {message.reasoning.trim() && (
        <Thinking text={message.reasoning} active={streaming && !message.content} />
      )}
      {waiting && (
        <span class="dots" role="status" aria-label="Waiting for the first token">
          <i /><i /><i />
        </span>
      )}
      <div class={streaming && message.content ? "text growing" : "text"}
        data-testid="answer-text">
        <Markup text={message.content} />
      </div>
      {message.error && <Failure error={message.error} onRetry={retry} />}
      <footer>
        <Stats message={message} />
        {!streaming && message.content && <CopyButton text={message.content} label="Copy answer" />}
        {retry && !message.error && (
          <button type="button" class="quiet" aria-label="Answer again" title="Answer again"
            onClick={retry} data-testid="regenerate">
            <Icon name="again" />
          </button>
        )}
      </footer>
    </article>
  );
}

function Editor({ text, onSave, onCancel }) {
  const [draft, setDraft] = useState(text);
  const keys = (event) => {
    if (event.key === "Escape") {
      event.stopPropagation();
      onCancel();
    } else if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      if (draft.trim()) onSave(draft.trim());
    }
  };
  return (
    <div class="editor">
      <textarea aria-label="Edit the message" rows={Math.min(8, draft.split("\n").length + 1)}
        value={draft} onInput={(event) => setDraft(event.target.value)} onKeyDown={keys}
        ref={(element) => element?.focus()} data-testid="editor" />
      <div>
        <button type="button" class="plain" onClick={onCancel}>Cancel</button>
        <button type="button" class="strong" disabled={!draft.trim()}
          onClick={() => onSave(draft.trim())} data-testid="editor-save">
          Send
        </button>
      </div>
    </div>
  );
}

function Question({ message, editable, onEdit }) {
  const [editing, setEditing] = useState(false);
  if (editing) {
    const save = (text) => {
      setEditing(false);
      onEdit(text);
    };
    return <Editor text={message.content} onSave={save} onCancel={() => setEditing(false)} />;
  }
  return (
    <article class="question" data-testid="user-message" aria-label="Question">
      <div class="bubble">{message.content}</div>
      <footer>
        <CopyButton text={message.content} label="Copy question" />
        {editable && (
          <button type="button" class="quiet" aria-label="Edit question" title="Edit question"
            onClick={() => setEditing(true)} data-testid="edit">
            <Icon name="edit" />
          </button>
        )}
      </footer>
    </article>
  );
}

export function Message(props) {
  return props.message.role === "user" ? <Question {...props} /> : <Answer {...props} />;
}
