// Before the SDK is loaded: only ever a daemon on this machine.
import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const api = process.env.PANDASTACK_API ?? "";
let host = "";
try { host = new URL(api).hostname; } catch { /* refused below */ }
if (!(host === "localhost" || host === "[::1]" || /^127\.\d+\.\d+\.\d+$/.test(host))) {
  console.error(`PANDASTACK_API is ${JSON.stringify(api)}, which is no loopback address: refusing to run`);
  process.exit(2);
}
if (!process.env.PANDASTACK_API_KEY) {
  console.error("PANDASTACK_API_KEY is not set");
  process.exit(2);
}
for (const name of Object.keys(process.env)) {
  if (/_proxy$/i.test(name) || name === "NODE_USE_ENV_PROXY" || name === "NODE_EXTRA_CA_CERTS") delete process.env[name];
}
process.env.HOME = mkdtempSync(join(tmpdir(), "compat-home-"));

export const API = api.replace(/\/+$/, "");
export const KEY = process.env.PANDASTACK_API_KEY;

export async function raw(method, path, body) {
  const init = { method, headers: { authorization: `Bearer ${KEY}` }, redirect: "manual" };
  if (body !== undefined) {
    init.body = JSON.stringify(body);
    init.headers["content-type"] = "application/json";
  }
  return fetch(API + "/v1" + path, init);
}

export async function until(what, seconds = 20) {
  const end = Date.now() + seconds * 1000;
  for (;;) {
    if (await what()) return;
    if (Date.now() > end) throw new Error("did not come true in time: " + what);
    await new Promise((r) => setTimeout(r, 200));
  }
}
