// Bundles src/ into one self-contained dist/index.html, with the licences of the packages in it in
// dist/NOTICES. Run by `npm run build`.
//
// The page carries two lines for its checkers: the hash of the sources it was built from
// (check_dist.py recomputes it) and a Content-Security-Policy that names the hashes of the one
// script and the one style sheet, so a browser runs nothing else, from here or elsewhere.
import { createHash } from "node:crypto";
import { mkdirSync, readFileSync, readdirSync, writeFileSync } from "node:fs";
import { dirname, join, sep } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import { notices } from "./notices.mjs";

const root = dirname(fileURLToPath(import.meta.url));
const digest = (text, encoding) => createHash("sha256").update(text, "utf8").digest(encoding);

// The same list and the same framing as in check_dist.py: name, NUL, bytes, NUL; sorted by name.
function sourcesHash() {
  const names = readdirSync(join(root, "src"), { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name).slice(root.length + 1).replaceAll(sep, "/"));
  const hash = createHash("sha256");
  for (const name of [...names, "build.mjs", "notices.mjs", "package.json", "package-lock.json"]
    .sort()) {
    hash.update(name).update("\0").update(readFileSync(join(root, name))).update("\0");
  }
  return hash.digest("hex");
}

const bundled = [];  // the files that went into the page

async function bundle(entry) {
  const result = await build({
    entryPoints: [join(root, "src", entry)],
    bundle: true,
    minify: true,
    write: false,
    format: "iife",
    target: ["es2021"],
    charset: "utf8",
    jsx: "automatic",
    jsxImportSource: "preact",
    legalComments: "none",
    metafile: true,
  });
  bundled.push(...Object.keys(result.metafile.inputs));
  return result.outputFiles[0].text.trim();
}

const script = (await bundle("main.jsx")).replaceAll("</script", "<\\/script");
const style = (await bundle("style/style.css")).replaceAll("</style", "<\\/style");
const policy = [
  "default-src 'none'",
  `script-src 'sha256-${digest(script, "base64")}'`,
  `style-src 'sha256-${digest(style, "base64")}'`,
  "connect-src 'self'",
  "img-src data:",
  "base-uri 'none'",
  "form-action 'none'",
].join("; ");
const icon = encodeURIComponent(readFileSync(join(root, "src", "icon.svg"), "utf8"));
const values = { policy, script, style, icon, sources: sourcesHash() };
const template = readFileSync(join(root, "src", "index.html"), "utf8");
const page = template.replace(/\{\{(\w+)\}\}/g, (_, name) => values[name]);

mkdirSync(join(root, "dist"), { recursive: true });
writeFileSync(join(root, "dist", "index.html"), page);
writeFileSync(join(root, "dist", "NOTICES"), notices(root, bundled));
console.log(`dist/index.html: ${Buffer.byteLength(page)} bytes`);
