// Write a digest of the sources into the build, so that a test can tell whether the build was made from them.
import { createHash } from "node:crypto";
import { readFileSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const ROOTS = ["index.html", "package-lock.json", "package.json", "tsconfig.json", "vite.config.ts"];

function files(folder) {
  return readdirSync(folder, { withFileTypes: true }).flatMap((entry) => {
    const path = join(folder, entry.name);
    return entry.isDirectory() ? files(path) : [path];
  });
}

const paths = [...ROOTS, ...files("src")].map((path) => path.replaceAll("\\", "/")).sort();
const digest = createHash("sha256");
for (const path of paths) {
  const content = readFileSync(path);
  digest.update(`${path}\0${content.length}\0`);
  digest.update(content);
}
const build = { sources: digest.digest("hex"), files: paths.length };
writeFileSync("../src/skate/dashboard/static/build.json", `${JSON.stringify(build, null, 2)}\n`);
