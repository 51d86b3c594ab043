// Where the next message is typed. Enter sends, Shift+Enter makes a line; while an answer streams
// the button stops it.
import { useEffect, useRef } from "preact/hooks";
import { Icon, StopIcon } from "../base/icons.jsx";

export function Composer({ draft, onDraft, thinking, onThinking, busy, ready, onSend, onStop }) {
  const field = useRef(null);
  const can_send = ready && !busy && draft.trim() !== "";

  useEffect(() => {
    const element = field.current;
    element.style.height = "auto";
    element.style.height = `${element.scrollHeight}px`;
  }, [draft]);

  const keys = (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    if (can_send) onSend();
  };

  return (
    <form class="composer" onSubmit={(event) => event.preventDefault()}>
      <textarea ref={field} rows={1} value={draft} onKeyDown={keys} autofocus data-home
        onInput={(event) => onDraft(event.target.value)} aria-label="Message"
        placeholder="Ask something…" enterkeyhint="send" data-testid="composer" />
      <div class="row">
        <button type="button" class="chip" aria-pressed={thinking} onClick={onThinking}
          title="Let the model think before it answers" data-testid="thinking-switch">
          <Icon name="thought" />
          Think
        </button>
        <span class="keys" aria-hidden="true">
          {busy ? "Esc stops" : "Enter sends · Shift+Enter new line"}
        </span>
        {busy ? (
          <button type="button" class="round" aria-label="Stop" title="Stop (Esc)" onClick={onStop}
            data-testid="stop">
            <StopIcon />
          </button>
        ) : (
          <button type="button" class="round" aria-label="Send" title="Send (Enter)"
            disabled={!can_send} onClick={onSend} data-testid="send">
            <Icon name="send" />
          </button>
        )}
      </div>
    </form>
  );
}
