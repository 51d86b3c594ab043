// The browser's storage, as JSON under keys of our own. It may be full, switched off or hold
// something old; then the page works without it.
export function load(key, fallback) {
  try {
    const text = localStorage.getItem(`braid.${key}`);
    return text === null ? fallback : JSON.parse(text);
  } catch {
    return fallback;
  }
}

export function save(key, value) {
  try {
    localStorage.setItem(`braid.${key}`, JSON.stringify(value));
  } catch {
    // Nothing to do: the page keeps the value in memory.
  }
}
