// One message of the conversation: the user's or the assistant's with its thinking, its text, what
// went wrong and how fast it was. Both can be edited, and both show the versions that there are.
import { useState } from "preact/hooks";
import { CopyButton } from "../base/copy.jsx";
import { count, seconds, some } from "../base/format.js";
import { Icon } from "../base/icons.jsx";
import { Markup } from "./markup.jsx";

// Open while the thinking streams, folded after; a click by the reader decides from then on.
export function Thinking({ text, active }) {
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

export function Failure({ error, onRetry }) {
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

function partsOf({ stats, status, finish }) {
  const parts = [];
  if (stats?.tokens > 0) parts.push(some(stats.tokens, "token"));
  if (stats?.tokens_per_second > 0) {
    parts.push(`${stats.tokens_per_second.toFixed(1)} tokens/s`);
  }
  if (stats?.first_token_ms >= 0) {
    parts.push(`first token after ${seconds(stats.first_token_ms / 1000)}`);
  }
  if (stats?.cached_tokens > 0) {
    parts.push(`${count(stats.cached_tokens)} of ${some(stats.prompt_tokens, "prompt token")} reused`);
  }
  if (status === "stopped") parts.push("stopped");
  if (finish === "length") parts.push("cut at the token limit");
  return parts;
}

export function Stats({ answer }) {
  return (
    <span class="stats" data-testid="stats">
      {partsOf(answer).map((part) => <span key={part}>{part}</span>)}
    </span>
  );
}

export function Waiting() {
  return (
    <span class="dots" role="status" aria-label="Waiting for the first token">
      <i /><i /><i />
    </span>
  );
}

// ‹ 2 / 3 › where a message has versions.
function Versions({ message, versions, onChoose }) {
  if (versions.length < 2) return null;
  const index = versions.findIndex(({ id }) => id === message.id);
  const step = (by, icon, label) => (
    <button type="button" class="quiet" aria-label={label} title={label}
      disabled={!versions[index + by]} onClick={() => onChoose(versions[index + by].id)}>
      <Icon name={icon} />
    </button>
  );
  return (
    <span class="versions" role="group" aria-label="Versions" data-testid="versions">
      {step(-1, "back", "Previous version")}
      <span>{index + 1} / {versions.length}</span>
      {step(1, "chevron", "Next version")}
    </span>
  );
}

function Tool({ icon, label, onClick, testid }) {
  return (
    <button type="button" class="quiet" aria-label={label} title={label} onClick={onClick}
      data-testid={testid}>
      <Icon name={icon} />
    </button>
  );
}

// can: whether it may be saved now; another answer may have begun since the editor was opened.
function Editor({ text, label, action, can, onSave, onCancel }) {
  const [draft, setDraft] = useState(text);
  const ready = can && draft.trim() !== "";
  const save = () => ready && onSave(draft.trim());
  const keys = (event) => {
    if (event.key === "Escape") {
      event.stopPropagation();
      onCancel();
    } else if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      save();
    }
  };
  return (
    <div class="editor">
      <textarea aria-label={label} rows={Math.min(12, draft.split("\n").length + 1)}
        value={draft} onInput={(event) => setDraft(event.target.value)} onKeyDown={keys}
        ref={(element) => element?.dataset.seen || focusOnce(element)} data-testid="editor" />
      <div>
        <button type="button" class="plain" onClick={onCancel}>Cancel</button>
        <button type="button" class="strong" disabled={!ready} onClick={save}
          data-testid="editor-save">
          {action}
        </button>
      </div>
    </div>
  );
}

function focusOnce(element) {
  if (!element) return;
  element.dataset.seen = "yes";
  element.focus();
  element.setSelectionRange(element.value.length, element.value.length);
}

function Answer({ message, versions, can, actions, onEdit }) {
  const streaming = message.status === "streaming";
  const retry = can ? () => actions.regenerate(message) : null;
  return (
    <article class="answer" data-testid="assistant-message" data-status={message.status}
      aria-label="Answer" aria-busy={streaming}>
      {message.reasoning.trim() && (
        <Thinking text={message.reasoning} active={streaming && !message.content} />
      )}
      {streaming && !message.content && !message.reasoning && <Waiting />}
      <div class={streaming && message.content ? "text growing" : "text"}
        data-testid="answer-text">
        <Markup text={message.content} />
      </div>
      {message.error && <Failure error={message.error} onRetry={retry} />}
      <footer>
        {!streaming && <Versions message={message} versions={versions} onChoose={actions.choose} />}
        {!streaming && message.content && <CopyButton text={message.content} label="Copy answer" />}
        {retry && !message.error && (
          <Tool icon="again" label="Regenerate" onClick={retry} testid="regenerate" />
        )}
        {can && message.content && (
          <Tool icon="edit" label="Edit answer" onClick={onEdit} testid="edit-answer" />
        )}
        <Stats answer={message} />
      </footer>
    </article>
  );
}

function Question({ message, versions, can, actions, onEdit }) {
  return (
    <article class="question" data-testid="user-message" aria-label="Question">
      <div class="bubble">{message.content}</div>
      <footer>
        <Versions message={message} versions={versions} onChoose={actions.choose} />
        <CopyButton text={message.content} label="Copy question" />
        {can && <Tool icon="edit" label="Edit question" onClick={onEdit} testid="edit" />}
      </footer>
    </article>
  );
}

// can: whether it may be edited and answered anew now; busy: whether an answer grows.
export function Message(props) {
  const { message, actions } = props;
  const [editing, setEditing] = useState(false);
  const asked = message.role === "user";
  if (!editing) {
    const Kind = asked ? Question : Answer;
    return <Kind {...props} onEdit={() => setEditing(true)} />;
  }
  const save = (text) => {
    setEditing(false);
    actions.edit(message, text);
  };
  return (
    <Editor text={message.content} can={asked ? props.can : !props.busy} label={asked ? "Edit the question" : "Edit the answer"}
      action={asked ? "Send" : "Save"} onSave={save} onCancel={() => setEditing(false)} />
  );
}
