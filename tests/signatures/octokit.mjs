// Signs or verifies with GitHub's own package, from the directory it is installed in.
//   sign <dir> <secret>     every example payload: one JSON line {name, body, signature} each
//   verify <dir> <secret>   JSON lines {body, signature} on stdin; exits with 1 at the first bad one
// Bodies are base64, so that no byte changes on the way.
import { readdirSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const [command, directory, secret] = process.argv.slice(2);
const packages = join(directory, "node_modules", "@octokit");
const { sign, verify } = await import(
  pathToFileURL(join(packages, "webhooks-methods", "dist-node", "index.js"))
);

if (command === "sign") {
  const require = createRequire(pathToFileURL(join(directory, "index.js")));
  const examples = join(packages, "webhooks-examples");
  for (const folder of readdirSync(examples, { withFileTypes: true })) {
    if (!folder.isDirectory() || folder.name === "node_modules") continue;
    for (const event of require(join(examples, folder.name, "index.json"))) {
      for (const payload of event.examples) {
        const body = JSON.stringify(payload);
        const line = {
          name: `${folder.name}/${event.name}`,
          body: Buffer.from(body).toString("base64"),
          signature: await sign(secret, body),
        };
        process.stdout.write(JSON.stringify(line) + "\n");
      }
    }
  }
} else {
  for await (const line of createInterface({ input: process.stdin })) {
    const { name, body, signature } = JSON.parse(line);
    if (!(await verify(secret, Buffer.from(body, "base64").toString(), signature))) {
      process.stderr.write(`not accepted: ${name}\n`);
      process.exit(1);
    }
  }
}
