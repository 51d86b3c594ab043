// A row of tabs, one chosen. Arrow keys, Home and End move along it, as in the ARIA pattern.
import { useRef } from "preact/hooks";

export function stepOf(key, index, count) {
  if (key === "ArrowRight" || key === "ArrowDown") return (index + 1) % count;
  if (key === "ArrowLeft" || key === "ArrowUp") return (index + count - 1) % count;
  if (key === "Home") return 0;
  if (key === "End") return count - 1;
  return -1;
}

export function Choices({ label, names, chosen, onChoose, testid }) {
  const row = useRef(null);
  const keys = (event) => {
    const next = stepOf(event.key, names.indexOf(chosen), names.length);
    if (next < 0) return;
    event.preventDefault();
    onChoose(names[next]);
    row.current.children[next].focus();
  };
  return (
    <div class="choices" role="tablist" aria-label={label} ref={row} onKeyDown={keys}>
      {names.map((name) => (
        <button key={name} type="button" role="tab" class="choice" aria-selected={name === chosen}
          tabIndex={name === chosen ? 0 : -1} onClick={() => onChoose(name)}
          data-testid={`${testid}-${name}`}>
          {name}
        </button>
      ))}
    </div>
  );
}
