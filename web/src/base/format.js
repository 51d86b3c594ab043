// Numbers as the page writes them.

export const count = (value) => (value === undefined ? "–" : value.toLocaleString("en"));

export const some = (value, noun) => `${count(value)} ${noun}${value === 1 ? "" : "s"}`;

export function percent(value) {
  if (value === undefined || Number.isNaN(value)) return "–";
  if (value > 0 && value < 0.001) return "< 0.1 %";
  if (value > 0.99 && value < 1) return "> 99 %";
  return `${(value * 100).toFixed(value > 0 && value < 0.1 ? 1 : 0)} %`;
}

export function seconds(value) {
  if (value === undefined || value === null) return "–";
  if (value.below !== undefined) return `< ${seconds(value.below)}`;
  if (value < 0.001) return "< 1 ms";
  if (value < 1) return `${(value * 1000).toFixed(value < 0.01 ? 1 : 0)} ms`;
  return `${value.toFixed(value < 10 ? 2 : 0)} s`;
}

export function bytes(value) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  for (; value >= 1024 && unit < units.length - 1; unit += 1) value /= 1024;
  return `${value.toFixed(Number.isInteger(value) || value >= 100 ? 0 : 1)} ${units[unit]}`;
}

// "kv_cache" as "Kv cache": for what has no label of its own.
export function words(key) {
  const text = key.replaceAll("_", " ");
  return text[0].toUpperCase() + text.slice(1);
}

// A number with up to four digits that count: 0.7, 0.0125, 1,234.
export const number = (value) => Number(value.toPrecision(4)).toLocaleString("en",
  { maximumSignificantDigits: 4 });
