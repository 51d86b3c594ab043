// The licences of the packages that the page contains, for dist/NOTICES: a section per package, its
// first line the name and version, separated by form feeds. scripts/notices.py reads it.
import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";

const PACKAGE = /(?:^|\/)node_modules\/((?:@[^/]+\/)?[^/]+)\//;

// `inputs`: the paths of all files that were bundled, from the metafiles of esbuild.
export function notices(root, inputs) {
  const names = new Set(inputs.map((path) => PACKAGE.exec(path)?.[1]).filter(Boolean));
  const sections = [...names].sort().map((name) => {
    const folder = join(root, "node_modules", name);
    const { version, license } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
    const files = readdirSync(folder).filter((file) => /^(licen[cs]e|copying|notice)/i.test(file));
    if (files.length === 0) throw new Error(`${name} has no licence file`);
    const texts = files.map((file) => readFileSync(join(folder, file), "utf8").trim());
    return [`${name} ${version} (npm, ${license})`, ...texts].join("\n\n");
  });
  return sections.join("\n\f\n") + "\n";
}
