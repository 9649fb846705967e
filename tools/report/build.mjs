// Builds the page's template: bundles src/ and puts code and style into src/page.html. build.sh runs it.
//
// usage: node build.mjs TEMPLATE [--check]      --check: writes nothing; fails if the template differs
import { createHash } from "node:crypto";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = path => fileURLToPath(new URL(path, import.meta.url));
const [TEMPLATE, flag] = process.argv.slice(2);

async function bundle(entry, options = {}) {
    const built = await build({
        entryPoints: [here(entry)],
        bundle: true,
        minify: true,
        write: false,
        charset: "ascii",
        legalComments: "inline",
        logLevel: "warning",
        ...options,
    });
    return built.outputFiles[0].text.trim();
}

// A test compares this with the sources, without building: tests/report/test_template.py.
function hashOfSources() {
    const names = [
        "build.mjs",
        "package-lock.json",
        "package.json",
        "tsconfig.json",
        ...readdirSync(here("src")).map(name => "src/" + name),
    ].sort();
    const hash = createHash("sha256");
    for (const name of names)
        hash.update(name + "\0")
            .update(readFileSync(here(name)))
            .update("\0");
    return hash.digest("hex");
}

async function template() {
    const script = await bundle("src/main.ts", { format: "iife", target: "es2022" });
    const style = await bundle("src/style.css", { target: ["chrome123", "firefox120", "safari17.5"] });
    const notice = readFileSync(here("node_modules/uplot/LICENSE"), "utf8").trim();
    const parts = {
        STYLE: style,
        SCRIPT: script.replaceAll("</script", "<\\/script"),
        NOTICE: notice,
        HASH: hashOfSources(),
    };
    return readFileSync(here("src/page.html"), "utf8").replace(
        /@@(STYLE|SCRIPT|NOTICE|HASH)@@/g,
        (_, name) => parts[name],
    );
}

const text = await template();
if (flag !== "--check") {
    writeFileSync(TEMPLATE, text);
} else if (readFileSync(TEMPLATE, "utf8") !== text) {
    console.error(`${TEMPLATE} is not what tools/report/src builds: run tools/report/build.sh`);
    process.exit(1);
}
