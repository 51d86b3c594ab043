// Light, dark, or what the system says. The style sheet does the rest through `color-scheme`.
import { load, save } from "./storage.js";

export const storedTheme = () => load("theme", null);

export function applyTheme(theme) {
  if (theme) document.documentElement.dataset.theme = theme;
}

export function toggleTheme() {
  const system = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  const next = (storedTheme() ?? system) === "dark" ? "light" : "dark";
  save("theme", next);
  applyTheme(next);
}
