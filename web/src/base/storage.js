// The browser's storage for small values, as JSON under keys of our own. It may be full, switched
// off or hold anything; then the page works without it. Callers check what they get.
export const kPrefix = "braid.";

export function load(key, fallback = null) {
  try {
    const text = localStorage.getItem(kPrefix + key);
    return text === null ? fallback : JSON.parse(text);
  } catch {
    return fallback;
  }
}

export function save(key, value) {
  try {
    localStorage.setItem(kPrefix + key, JSON.stringify(value));
  } catch {
    // Nothing to do: the page keeps the value in memory.
  }
}

export function forget(key) {
  try {
    localStorage.removeItem(kPrefix + key);
  } catch {
    // It could not be stored either.
  }
}

// Every value of ours as the text that is stored: {"braid.settings": "{…}"}.
export function rawValues() {
  const values = {};
  try {
    for (const key of Object.keys(localStorage)) {
      if (key.startsWith(kPrefix)) values[key] = localStorage.getItem(key);
    }
  } catch {
    // Storage is switched off: there is nothing.
  }
  return values;
}
