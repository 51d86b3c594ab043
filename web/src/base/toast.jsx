// A short note at the bottom, with at most one thing to do about it. It stays while it is pointed
// at or focused, and goes by itself after a while.
import { useEffect, useState } from "preact/hooks";
import { Icon } from "./icons.jsx";
import { Store, useStore } from "./store.js";

const kShownMs = 10_000;
const notes = new Store({ note: null });

// action: {label, run}
export const say = (text, action) => notes.set({ note: { text, action } });
export const unsay = () => notes.set({ note: null });

export function Toast() {
  const { note } = useStore(notes);
  const [held, setHeld] = useState(false);
  useEffect(() => {
    if (!note || held) return undefined;
    const timer = setTimeout(unsay, kShownMs);
    return () => clearTimeout(timer);
  }, [note, held]);
  useEffect(() => setHeld(false), [note]);
  const act = () => {
    unsay();
    note.action.run();
  };
  return (
    <div class="toast-place" role="status">
      {note && (
        <div class="toast" data-testid="toast" onMouseEnter={() => setHeld(true)}
          onMouseLeave={() => setHeld(false)} onFocusIn={() => setHeld(true)}
          onFocusOut={() => setHeld(false)}>
          <span>{note.text}</span>
          {note.action && (
            <button type="button" class="link" onClick={act} data-testid="toast-action">
              {note.action.label}
            </button>
          )}
          <button type="button" class="quiet" aria-label="Dismiss" onClick={unsay}>
            <Icon name="close" />
          </button>
        </div>
      )}
    </div>
  );
}
