// Light, dark, or what the system says. The style sheet does the rest through `color-scheme`.
import { load, save } from "./storage.js";

const kThemes = ["light", "dark"];

export function storedTheme() {
  const theme = load("theme");
  return kThemes.includes(theme) ? theme : null;
}

export function applyTheme(theme) {
  if (theme) document.documentElement.dataset.theme = theme;
}

export function toggleTheme() {
  const system = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  const next = (storedTheme() ?? system) === "dark" ? "light" : "dark";
  save("theme", next);
  applyTheme(next);
}
