// Line icons on a 24-unit grid, drawn in the colour of the text around them.
const kPaths = {
  send: "M12 19V5M6 11l6-6 6 6",
  copy: "M9 9h10v11H9zM5 15V4h10",
  check: "M5 12l5 5 9-10",
  again: "M20 11a8 8 0 1 0-2 6M20 5v6h-6",
  edit: "M4 20h4L19 9l-4-4L4 16zM13 7l4 4",
  plus: "M12 5v14M5 12h14",
  sliders: "M4 7h9M17 7h3M4 17h3M11 17h9M15 5v4M9 15v4",
  theme: "M12 3a9 9 0 1 0 0 18zM12 3a9 9 0 0 1 0 18",
  close: "M6 6l12 12M18 6L6 18",
  chevron: "M9 6l6 6-6 6",
  back: "M15 6l-6 6 6 6",
  thought: "M9 18h6M10 21h4M8 14a6 6 0 1 1 8 0c-.7.7-1 1.3-1 2H9c0-.7-.3-1.3-1-2z",
  down: "M12 5v14M6 13l6 6 6-6",
  list: "M4 6h16M4 12h16M4 18h10",
  search: "M11 4a7 7 0 1 0 0 14 7 7 0 0 0 0-14zM16.5 16.5L21 21",
  trash: "M4 7h16M9 7V4h6v3M6 7l1 13h10l1-13M10 11v5M14 11v5",
  save: "M12 4v11M7 11l5 5 5-5M4 20h16",
  open: "M12 16V5M7 9l5-5 5 5M4 20h16",
  key: "M14 10a4 4 0 1 0-4 4 4 4 0 0 0 4-4zM13 13l7 7M17 17l2-2",
  cross: "M7 7l10 10M17 7L7 17",
};

export function Icon({ name }) {
  return (
    <svg class={`icon icon-${name}`} viewBox="0 0 24 24" aria-hidden="true">
      <path d={kPaths[name]} />
    </svg>
  );
}

// Three strands, each a third of a wave behind the last: the same drawing as icon.svg.
export function Logo() {
  return (
    <svg class="logo" viewBox="0 0 24 24" aria-hidden="true">
      <rect width="24" height="24" fill="#0d7a70" />
      <path stroke="#6fcabf" d="M0 12q6-15 12 0t12 0" />
      <path stroke="#b3e8e1" d="M-8 12q6-15 12 0t12 0 12 0" />
      <path stroke="#fff" d="M-16 12q6-15 12 0t12 0 12 0 12 0" />
    </svg>
  );
}

export function StopIcon() {
  return (
    <svg class="icon" viewBox="0 0 24 24" aria-hidden="true">
      <rect x="7" y="7" width="10" height="10" rx="2" fill="currentColor" />
    </svg>
  );
}
