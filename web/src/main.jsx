// Entry: applies the stored theme before the first paint, then mounts the page.
import { render } from "preact";
import { App } from "./app.jsx";
import { Boundary } from "./base/boundary.jsx";
import { applyTheme, storedTheme } from "./base/theme.js";
import { history } from "./chat/history.js";

applyTheme(storedTheme());
history.start();
addEventListener("pagehide", () => history.flush());
addEventListener("visibilitychange", () => document.hidden && history.flush());
render(<Boundary><App /></Boundary>, document.getElementById("app"));
