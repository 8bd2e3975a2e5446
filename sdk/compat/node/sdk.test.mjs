// The real, unmodified @pandastack/sdk against a daemon on this machine.
import { API, KEY, raw, until } from "./setup.mjs";
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const sdk = await import("@pandastack/sdk");
const { Client, Sandbox } = sdk;

const client = new Client();
assert.equal(client.apiUrl.replace(/\/+$/, ""), API);
let box;

const fails = (kind, status) => (err) => {
  assert.ok(err instanceof sdk[kind], `${err?.name}: ${err?.message}, not ${kind}`);
  if (status !== undefined) assert.equal(err.statusCode, status);
  return true;
};

before(async () => { box = await Sandbox.create({ ttlSeconds: 600, metadata: { run_id: "compat-node" } }, client); });
after(async () => { await box?.kill(); });

describe("sandboxes", () => {
  test("create", () => {
    assert.equal(box.status, "running");
    assert.equal(box.template, "ubuntu-24.04"); // what the SDK asks for by itself
    assert.equal(box.info.metadata.run_id, "compat-node");
    assert.equal(box.info.persistent, false);
    assert.ok(box.info.boot_ms >= 0);
    assert.match(box.id, /^[a-z0-9]{24,40}$/);
  });

  test("list and get", async () => {
    assert.ok((await Sandbox.list(client)).some((b) => b.id === box.id));
    assert.equal((await Sandbox.get(box.id, client)).id, box.id);
  });

  test("unknown ids", async () => {
    const began = Date.now();
    await assert.rejects(Sandbox.get("s" + "0".repeat(32), client), fails("NotFoundError", 404));
    assert.ok(Date.now() - began >= 200); // asked twice, answered alike
    await assert.rejects(client.sandboxes.delete("s" + "0".repeat(32)), fails("NotFoundError", 404));
    await assert.rejects(Sandbox.create({ template: "no-such-template" }, client), fails("NotFoundError", 404));
    await assert.rejects(Sandbox.create({ ttlSeconds: -1 }, client), fails("BadRequestError", 400));
  });

  test("kill twice", async () => {
    const one = await Sandbox.create({ template: "base", ttlSeconds: 60 }, client);
    await one.kill();
    await one.kill();
    assert.ok(!(await Sandbox.list(client)).some((b) => b.id === one.id));
    await assert.rejects(one.exec("true"), fails("BadRequestError", 410));
  });

  test("lifecycle", async () => {
    const one = await Sandbox.create({ template: "code-interpreter", ttl_seconds: 300 }, client);
    try {
      assert.equal((await one.lifecycle()).ttl_seconds, 300);
      assert.equal((await one.setTtl(400)).ttl_seconds, 400);
      await assert.rejects(one.setTtl(-1), fails("BadRequestError", 400));
      assert.equal((await one.setPersistent(true)).persistent, true);
      assert.equal((await one.setPersistent(false)).persistent, false);
      await one.pause();
      assert.equal((await Sandbox.get(one.id, client)).status, "paused");
      await assert.rejects(one.exec("true"), fails("BadRequestError", 409));
      await one.resume();
      assert.equal((await one.exec("echo hi")).stdout, "hi\n");
    } finally {
      await one.kill();
    }
  });

  test("errors of access", async () => {
    await assert.rejects(new Client({ apiKey: "wrong" }).sandboxes.list(), fails("AuthError", 401));
    await assert.rejects(new Client({ apiUrl: "http://127.0.0.1:1" }).sandboxes.list(), fails("NetworkError"));
  });

  test("templates and me", async () => {
    assert.ok((await client.templates.list()).some((t) => t.name === "code-interpreter"));
    assert.equal((await client.templates.get("code-interpreter")).name, "code-interpreter");
    await assert.rejects(client.templates.get("no-such-template"), fails("NotFoundError", 404));
    assert.ok((await client.me()).auth_method);
  });

  test("tokens", async (t) => {
    let made;
    try {
      made = await client.tokens.create("compat");
    } catch (err) {
      if (err instanceof sdk.AuthError) return t.skip(`PANDASTACK_API_KEY is no admin token: ${err.message}`);
      throw err;
    }
    assert.ok(made.token.startsWith(made.prefix));
    assert.ok((await client.tokens.list()).some((k) => k.prefix === made.prefix));
    const other = new Client({ apiKey: made.token });
    assert.equal((await other.sandboxes.get(box.id)).id, box.id);
    await assert.rejects(other.tokens.create("more"), fails("AuthError", 403));
    await client.tokens.revoke(made.prefix);
    await assert.rejects(other.sandboxes.list(), fails("AuthError", 401));
  });

  test("ports and preview", async () => {
    await box.exec("cd /tmp && echo served > page && nohup python3 -m http.server 8124 --bind 127.0.0.1 >/dev/null 2>&1 &");
    await until(async () => 8124 in (await box.previewUrls()));
    assert.match(box.previewUrl(8124), new RegExp(`^https://8124-${box.id}\\.`));
    assert.equal(await (await raw("GET", `/sandboxes/${box.id}/proxy/8124/page`)).text(), "served\n");
  });
});

describe("exec", () => {
  test("streams and code", async () => {
    const got = await box.exec("echo out; echo err >&2; exit 3");
    assert.deepEqual([got.stdout, got.stderr, got.exit_code, got.exitCode], ["out\n", "err\n", 3, 3]);
    assert.equal((await box.commands.run("printf '\\303\\245\\342\\200\\250'")).stdout, "\u00e5\u2028");
    assert.equal((await box.exec("no-such-command")).exitCode, 127);
  });

  test("check", async () => {
    await assert.rejects(box.exec("echo o; exit 7", { check: true }), (err) => {
      assert.ok(err instanceof sdk.CommandError);
      assert.deepEqual([err.exitCode, err.stdout], [7, "o\n"]);
      return true;
    });
  });

  test("timeout is a result", async () => {
    const began = Date.now();
    const got = await box.exec("echo part; sleep 60", { timeoutSeconds: 2 });
    assert.deepEqual([got.exitCode, got.stdout, got.timed_out], [124, "part\n", true]);
    assert.ok(Date.now() - began < 15000);
  });

  test("run code", async () => {
    assert.equal((await box.runCode("print(6*7)", "python")).stdout, "42\n");
    assert.equal((await box.runCode("echo $((6*7))")).stdout, "42\n");
  });

  test("stream", async () => {
    const out = [], err = [];
    const code = await box.execStream("echo one; sleep 0.3; echo two >&2; printf '\\303'; sleep 0.2; printf '\\245\\302\\205'; exit 3",
      { onStdout: (s) => out.push(s), onStderr: (s) => err.push(s) });
    assert.deepEqual([code, out.join(""), err.join("")], [3, "one\n\u00e5\u0085", "two\n"]);
    assert.ok(out.length > 1);
    out.length = 0;
    await box.execStream("seq 100000", { onStdout: (s) => out.push(s) });
    assert.equal(out.join(""), Array.from({ length: 100000 }, (_, i) => `${i + 1}\n`).join(""));
  });

  test("stream timeout", async () => {
    const out = [];
    await assert.rejects(box.execStream("echo part; sleep 60", { onStdout: (s) => out.push(s), timeoutSeconds: 2 }), fails("SandboxTimeout"));
    assert.equal(out.join(""), "part\n");
  });

  test("stream refused", async () => {
    const gone = Sandbox.fromInfo({ ...box.info, id: "s" + "0".repeat(32) }, client);
    await assert.rejects(gone.execStream("true"), fails("NotFoundError", 404));
  });

  test("background lives on", async () => {
    await box.exec("nohup setsid sh -c 'sleep 1; echo 5 > /tmp/exit-file-node' >/dev/null 2>&1 &");
    await until(async () => (await box.exec("cat /tmp/exit-file-node 2>/dev/null")).stdout === "5\n");
  });

  test("parallel", async () => {
    const got = await Promise.all([1, 2, 3, 4, 5, 6].map((i) => box.exec(`sleep 0.2; echo ${i}`)));
    assert.deepEqual(got.map((r) => r.stdout), ["1\n", "2\n", "3\n", "4\n", "5\n", "6\n"]);
  });

  test("logs", async () => {
    // A log holds what ran without its caller; this SDK has no call for that.
    const detached = async (cmd) => {
      const started = await (await raw("POST", `/sandboxes/${box.id}/exec`, { cmd, detach: true })).json();
      await until(async () => (await (await raw("GET", `/sandboxes/${box.id}/execs/${started.exec_id}`)).json()).state === "ended");
    };
    await detached("echo in-the-log");
    const lines = [];
    for await (const line of box.logs()) lines.push(line);
    assert.ok(lines.some((l) => l.includes("in-the-log")));
    let seen = false;
    const follower = (async () => {
      for await (const line of box.logs({ follow: true })) if (line.includes("followed-node")) { seen = true; return; }
    })();
    await until(async () => { await detached("echo followed-node"); return seen; });
    await follower;
  });
});

describe("files", () => {
  test("write and read", async () => {
    for (const [path, text] of [["/tmp/a.txt", "text \u00e5\n"], ["/tmp/deep/er/b", "x"], ["/tmp/empty", ""], ["/tmp/with blank + plus %20 &?#", "y"], ["/run/c.json", "{}"]]) {
      const got = await box.filesystem.write(path, text);
      assert.deepEqual([got.path, got.bytes], [path, Buffer.byteLength(text)]);
      assert.equal(await box.filesystem.read(path), text);
    }
    await box.filesystem.write("/tmp/bin", new Uint8Array([0, 255, 128]));
    assert.equal((await box.exec("od -An -tx1 /tmp/bin")).stdout.trim(), "00 ff 80");
  });

  test("upload and download", async () => {
    const dir = mkdtempSync(join(tmpdir(), "compat-"));
    writeFileSync(join(dir, "a"), "x".repeat(5 << 20));
    await box.filesystem.upload(join(dir, "a"), "/tmp/up");
    await box.filesystem.download("/tmp/up", join(dir, "b"));
    assert.equal(readFileSync(join(dir, "b"), "utf8").length, 5 << 20);
  });

  test("stat, exists, list, walk", async () => {
    await box.exec("mkdir -p /tmp/tree/sub /tmp/tree/none; echo 1 > /tmp/tree/f; echo 22 > /tmp/tree/sub/g; ln -s /tmp /tmp/tree/link");
    const info = await box.filesystem.stat("/tmp/tree/f");
    assert.deepEqual([info.name, info.path, info.size, info.is_dir], ["f", "/tmp/tree/f", 2, false]);
    assert.ok(Math.abs(info.mtime - Date.now() / 1000) < 600);
    assert.equal(await box.filesystem.exists("/tmp/tree"), true);
    assert.equal(await box.filesystem.exists("/no/such"), false);
    await assert.rejects(box.filesystem.read("/no/such"), fails("NotFoundError", 404));
    await assert.rejects(box.filesystem.read("relative"), fails("BadRequestError", 400));
    assert.deepEqual((await box.filesystem.list("/tmp/tree")).map((e) => e.name).sort(), ["f", "link", "none", "sub"]);
    assert.deepEqual(await box.filesystem.list("/tmp/tree/none"), []);
    const seen = [];
    for await (const { dir } of box.filesystem.walk("/tmp/tree")) seen.push(dir);
    assert.deepEqual(seen.sort(), ["/tmp/tree", "/tmp/tree/none", "/tmp/tree/sub"]);
  });
});

describe("templates", () => {
  // A tar of one empty folder: a header with its sum, and the two blocks of the end.
  const rootfs = () => {
    const tar = new Uint8Array(1536);
    const put = (at, text) => tar.set(new TextEncoder().encode(text), at);
    put(0, "etc/"); put(100, "0000755\0"); put(108, "0000000\0"); put(116, "0000000\0"); put(124, "00000000000\0");
    put(136, "00000000000\0"); put(148, "        "); put(156, "5"); put(257, "ustar\u000000");
    put(148, tar.subarray(0, 512).reduce((a, b) => a + b, 0).toString(8).padStart(6, "0") + "\0 ");
    return tar;
  };
  test("build, follow, list and delete", async () => {
    const name = `compat-node-${Date.now().toString(36)}`;
    const build = await client.templates.build({ name, rootfs: rootfs() });
    for await (const line of client.templates.buildLogs(build.id)) assert.equal(typeof line, "string");
    const done = await client.templates.buildStatus(build.id);
    assert.equal(done.status, "done", JSON.stringify(done));
    assert.ok((await client.templates.list()).some((t) => t.name === name));
    assert.ok((await client.templates.builds()).some((b) => b.id === build.id));
    const next = await client.templates.buildFromDockerfile({ name: `${name}-2`, dockerfile: `FROM ${name}\nCOPY a/b.txt /etc/\n`, context: { "a/b.txt": "hi" } });
    const lines = [];
    for await (const line of client.templates.buildLogs(next.id)) lines.push(line);
    assert.ok(lines.some((l) => l.includes("COPY a/b.txt")), lines.join("\n"));
    assert.equal((await client.templates.buildStatus(next.id)).status, "done");
    for (const one of [`${name}-2`, name]) await client.templates.delete(one);
    await assert.rejects(client.templates.get(name), fails("NotFoundError", 404));
  });
});

describe("not offered", () => {
  const calls = {
    snapshot: () => box.snapshot(),
    fork: () => box.fork(),
    forkTree: () => box.forkTree({ count: 2 }),
    promote: () => box.promote(),
    explore: () => box.explore(["true"]),
    hibernate: () => box.hibernate(),
    wake: () => box.wake(),
    createCodeContext: () => box.createCodeContext(),
    "create from snapshot": () => Sandbox.create({ fromSnapshot: "n1" }, client),
    "create with volumes": () => Sandbox.create({ volumes: [{ name: "v" }] }, client),
    "snapshots.list": () => client.snapshots.list(),
    "volumes.list": () => client.volumes.list(),
    "databases.list": () => client.databases.list(),
    "functions.list": () => client.functions.list(),
    "schedules.list": () => client.schedules.list(),
    "apps.list": () => client.apps.list(),
  };
  for (const [name, call] of Object.entries(calls)) {
    test(name, async () => { await assert.rejects(call, fails("ServerError", 501)); });
  }

  test("the answer is typed", async () => {
    const answer = await raw("POST", `/sandboxes/${box.id}/snapshots`);
    const body = await answer.json();
    assert.deepEqual([answer.status, body.code, typeof body.error], [501, "feature.unavailable", "string"]);
    assert.ok(KEY && body.request_id);
  });
});
