// Entry: applies the stored theme before the first paint, then mounts the page.
import { render } from "preact";
import { App } from "./app.jsx";
import { applyTheme, storedTheme } from "./theme.js";

applyTheme(storedTheme());
render(<App />, document.getElementById("app"));
