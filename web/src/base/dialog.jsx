// A modal dialog: the browser's own <dialog>, so that the rest of the page is inert. Focus goes
// round inside it, Escape and a click beside it close it, and then focus is where it was before.
// Notes are shown inside it while it is open, where they can be reached.
import { useLayoutEffect, useRef } from "preact/hooks";
import { Icon } from "./icons.jsx";
import { Toast } from "./toast.jsx";

const kFocusable =
  'button, [href], input, select, textarea, summary, [tabindex]:not([tabindex="-1"])';

const focusableIn = (element) => [...element.querySelectorAll(kFocusable)].filter(
  (item) => !item.disabled && item.tabIndex >= 0 && item.getClientRects().length > 0);

function keepFocusInside(event) {
  if (event.key !== "Tab") return;
  const items = focusableIn(event.currentTarget);
  if (items.length === 0) return;
  const [from, to] = event.shiftKey ? [items[0], items.at(-1)] : [items.at(-1), items[0]];
  if (document.activeElement === from || !items.includes(document.activeElement)) {
    event.preventDefault();
    to.focus();
  }
}

export function Dialog({ title, kind, onClose, children, testid }) {
  const element = useRef(null);
  useLayoutEffect(() => {
    const dialog = element.current;
    dialog.showModal();
    (dialog.querySelector("[data-first]") ?? focusableIn(dialog)[0])?.focus();
    return () => dialog.close();  // the browser gives the focus back to the opener
  }, []);
  const cancel = (event) => {
    event.preventDefault();
    onClose();
  };
  const beside = (event) => {
    if (event.target === element.current) onClose();
  };
  return (
    <dialog ref={element} class={`dialog ${kind}`} aria-label={title} aria-modal="true"
      onCancel={cancel} onKeyDown={keepFocusInside} onMouseDown={beside} data-testid={testid}>
      <div class="sheet">
        <header>
          <h2>{title}</h2>
          <button type="button" class="quiet" aria-label={`Close ${title.toLowerCase()}`}
            title="Close (Esc)" onClick={onClose}>
            <Icon name="close" />
          </button>
        </header>
        {children}
      </div>
      <Toast />
    </dialog>
  );
}
