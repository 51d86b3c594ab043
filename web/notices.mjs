// The licences of the packages that the page contains, for dist/NOTICES: a section per package, its
// first line the name and version, separated by form feeds. scripts/notices.py reads it.
import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";

const PACKAGE = /(?:^|\/)node_modules\/((?:@[^/]+\/)?[^/]+)\//;

// For a package that declares this licence and ships no text of it.
const MIT = (author) => `MIT License

Copyright (c) ${author}

Permission is hereby granted, free of charge, to any person obtaining a copy
of this software and associated documentation files (the "Software"), to deal
in the Software without restriction, including without limitation the rights
to use, copy, modify, merge, publish, distribute, sublicense, and/or sell
copies of the Software, and to permit persons to whom the Software is
furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all
copies or substantial portions of the Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR
IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY,
FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE
AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER
LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM,
OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE
SOFTWARE.`;

function textsOf(folder, name, { license, author }) {
  const files = readdirSync(folder).filter((file) => /^(licen[cs]e|copying|notice)/i.test(file));
  if (files.length > 0) return files.map((file) => readFileSync(join(folder, file), "utf8").trim());
  if (license !== "MIT" || !author) throw new Error(`${name} has no licence file`);
  return [MIT(author.name ?? author)];
}

// `inputs`: the paths of all files that were bundled, from the metafiles of esbuild.
export function notices(root, inputs) {
  const names = new Set(inputs.map((path) => PACKAGE.exec(path)?.[1]).filter(Boolean));
  const sections = [...names].sort().map((name) => {
    const folder = join(root, "node_modules", name);
    const about = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
    const title = `${name} ${about.version} (npm, ${about.license})`;
    return [title, ...textsOf(folder, name, about)].join("\n\n");
  });
  return sections.join("\n\f\n") + "\n";
}
