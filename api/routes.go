package api

// Route is one way into the API. The table below is what the server serves,
// what the OpenAPI document describes and what GET /v1/routes answers; tests
// hold all three to it, cell by cell.
type Route struct {
	Name   string `json:"name"`
	Method string `json:"method"` // ANY for a proxy
	Path   string `json:"path"`
	// Role is the least role that may use it: "" is everybody without a token.
	// Every route that names a sandbox is bound to the token's own tenant,
	// whatever the role.
	Role string `json:"role"`
	// Missing names the part of Berm that this route waits for; it answers 501.
	Missing string `json:"missing,omitempty"`
}

// Routes is every route.
var Routes = []Route{
	{"healthz", "GET", "/healthz", "", ""},
	{"openapi", "GET", "/openapi.yaml", RoleAgent, ""},
	{"metrics", "GET", "/metrics", RoleOperator, ""},
	{"version", "GET", "/v1/version", RoleAgent, ""},
	{"routes", "GET", "/v1/routes", RoleAgent, ""},
	{"me", "GET", "/v1/me", RoleAgent, ""},
	{"doctor", "GET", "/v1/doctor", RoleAgent, ""},
	{"leaks", "GET", "/v1/doctor/leaks", RoleOperator, ""},
	{"top", "GET", "/v1/top", RoleAgent, ""},

	{"sandbox.create", "POST", "/v1/sandboxes", RoleAgent, ""},
	{"sandbox.list", "GET", "/v1/sandboxes", RoleAgent, ""},
	{"sandbox.get", "GET", "/v1/sandboxes/{id}", RoleAgent, ""},
	{"sandbox.delete", "DELETE", "/v1/sandboxes/{id}", RoleAgent, ""},
	{"sandbox.report", "GET", "/v1/sandboxes/{id}/report", RoleAgent, ""},
	{"sandbox.lifecycle", "GET", "/v1/sandboxes/{id}/lifecycle", RoleAgent, ""},
	{"sandbox.lifecycle.set", "PATCH", "/v1/sandboxes/{id}/lifecycle", RoleAgent, ""},
	{"sandbox.metadata", "GET", "/v1/sandboxes/{id}/metadata", RoleAgent, ""},
	{"sandbox.metadata.set", "PATCH", "/v1/sandboxes/{id}/metadata", RoleAgent, ""},
	{"sandbox.pause", "POST", "/v1/sandboxes/{id}/pause", RoleAgent, ""},
	{"sandbox.resume", "POST", "/v1/sandboxes/{id}/resume", RoleAgent, ""},
	{"sandbox.metrics", "GET", "/v1/sandboxes/{id}/metrics", RoleAgent, ""},
	{"sandbox.egress", "GET", "/v1/sandboxes/{id}/egress", RoleAgent, ""},
	{"sandbox.egress.set", "PATCH", "/v1/sandboxes/{id}/egress", RoleAgent, ""}, // wider: operators only
	{"sandbox.events", "GET", "/v1/sandboxes/{id}/events", RoleAgent, ""},
	{"sandbox.logs", "GET", "/v1/sandboxes/{id}/logs", RoleAgent, ""},
	{"sandbox.ports", "GET", "/v1/sandboxes/{id}/ports", RoleAgent, ""},
	{"sandbox.proxy", "ANY", "/v1/sandboxes/{id}/proxy/{port}/{path...}", RoleAgent, ""},
	{"sandbox.dial", "GET", "/v1/sandboxes/{id}/dial/{port}", RoleAgent, ""}, // Upgrade: berm-stream

	{"exec", "POST", "/v1/sandboxes/{id}/exec", RoleAgent, ""}, // plain, or Upgrade: berm-exec
	{"exec.stream", "POST", "/v1/sandboxes/{id}/exec/stream", RoleAgent, ""},
	{"exec.ws", "GET", "/v1/sandboxes/{id}/exec/ws", RoleAgent, ""},
	{"exec.pty", "GET", "/v1/sandboxes/{id}/exec/pty", RoleAgent, ""},
	{"exec.list", "GET", "/v1/sandboxes/{id}/execs", RoleAgent, ""},
	{"exec.get", "GET", "/v1/sandboxes/{id}/execs/{exec}", RoleAgent, ""},
	{"exec.kill", "DELETE", "/v1/sandboxes/{id}/execs/{exec}", RoleAgent, ""},
	{"exec.output", "GET", "/v1/sandboxes/{id}/execs/{exec}/output", RoleAgent, ""}, // SSE
	{"exec.signal", "POST", "/v1/sandboxes/{id}/execs/{exec}/signal", RoleAgent, ""},
	{"exec.stdin", "POST", "/v1/sandboxes/{id}/execs/{exec}/stdin", RoleAgent, ""},

	{"fs.read", "GET", "/v1/sandboxes/{id}/fs", RoleAgent, ""},
	{"fs.write", "PUT", "/v1/sandboxes/{id}/fs", RoleAgent, ""},
	{"fs.delete", "DELETE", "/v1/sandboxes/{id}/fs", RoleAgent, ""},
	{"fs.dir", "GET", "/v1/sandboxes/{id}/fs/dir", RoleAgent, ""},
	{"fs.mkdir", "POST", "/v1/sandboxes/{id}/fs/dir", RoleAgent, ""},
	{"fs.stat", "GET", "/v1/sandboxes/{id}/fs/stat", RoleAgent, ""},
	{"fs.move", "POST", "/v1/sandboxes/{id}/fs/move", RoleAgent, ""},
	{"fs.watch", "GET", "/v1/sandboxes/{id}/fs/watch", RoleAgent, ""}, // SSE
	{"sandbox.changes", "GET", "/v1/sandboxes/{id}/changes", RoleAgent, ""},
	{"fs.tar", "GET", "/v1/sandboxes/{id}/archive", RoleAgent, ""},
	{"fs.untar", "PUT", "/v1/sandboxes/{id}/archive", RoleAgent, ""},
	{"fs.glob", "GET", "/v1/sandboxes/{id}/glob", RoleAgent, ""},
	{"fs.list", "GET", "/v1/sandboxes/{id}/list", RoleAgent, ""},
	{"fs.file", "GET", "/v1/sandboxes/{id}/files", RoleAgent, ""},

	{"events", "GET", "/v1/events", RoleAgent, ""}, // own tenant's; SSE or wait=
	{"audit.head", "GET", "/v1/audit/head", RoleOperator, ""},
	{"audit.verify", "POST", "/v1/audit/verify", RoleOperator, ""},
	{"audit.export", "GET", "/v1/audit/export", RoleOperator, ""},
	{"audit.report", "GET", "/v1/audit/report/{subject}", RoleAgent, ""},

	{"template.list", "GET", "/v1/templates", RoleAgent, ""},
	{"template.get", "GET", "/v1/templates/{name}", RoleAgent, ""},
	// What follows is the node's: for operators of the default tenant.
	{"template.delete", "DELETE", "/v1/templates/{name}", RoleOperator, ""},
	{"template.export", "GET", "/v1/templates/{name}/export", RoleOperator, ""},
	{"template.import", "POST", "/v1/templates/import", RoleOperator, ""},
	{"template.pull", "POST", "/v1/templates/pull", RoleOperator, ""},
	{"template.build", "POST", "/v1/templates/build", RoleOperator, ""},
	{"template.builds", "GET", "/v1/templates/builds", RoleOperator, ""},
	{"template.build.get", "GET", "/v1/templates/builds/{build}", RoleOperator, ""},
	{"template.build.cancel", "DELETE", "/v1/templates/builds/{build}", RoleOperator, ""},
	{"template.build.logs", "GET", "/v1/templates/builds/{build}/logs", RoleOperator, ""}, // SSE

	{"workspace.create", "POST", "/v1/workspaces", RoleAgent, ""},
	{"workspace.get", "GET", "/v1/workspaces/{workspace}", RoleAgent, ""},

	{"token.list", "GET", "/v1/tokens", RoleAdmin, ""},
	{"token.create", "POST", "/v1/tokens", RoleAdmin, ""},
	{"token.revoke", "DELETE", "/v1/tokens/{token}", RoleAdmin, ""},
	{"me.tokens", "GET", "/v1/me/tokens", RoleAdmin, ""}, // PandaStack's names for the same
	{"me.tokens.create", "POST", "/v1/me/tokens", RoleAdmin, ""},
	{"me.tokens.revoke", "DELETE", "/v1/me/tokens/{token}", RoleAdmin, ""},

	{"sandbox.hibernate", "POST", "/v1/sandboxes/{id}/hibernate", RoleAgent, "snapshots"},
	{"sandbox.stop", "POST", "/v1/sandboxes/{id}/stop", RoleAgent, "snapshots"},
	{"sandbox.wake", "POST", "/v1/sandboxes/{id}/wake", RoleAgent, "snapshots"},
	{"sandbox.start", "POST", "/v1/sandboxes/{id}/start", RoleAgent, "snapshots"},
	{"sandbox.snapshot", "POST", "/v1/sandboxes/{id}/snapshots", RoleAgent, "snapshots"},
	{"sandbox.fork", "POST", "/v1/sandboxes/{id}/fork", RoleAgent, "snapshots"},
	{"sandbox.forktree", "POST", "/v1/sandboxes/{id}/fork-tree", RoleAgent, "snapshots"},
	{"sandbox.promote", "POST", "/v1/sandboxes/{id}/promote", RoleAgent, "snapshots"},
	{"snapshot.list", "GET", "/v1/snapshots", RoleAgent, "snapshots"},
	{"snapshot.get", "GET", "/v1/snapshots/{snapshot}", RoleAgent, "snapshots"},
	{"snapshot.delete", "DELETE", "/v1/snapshots/{snapshot}", RoleAgent, "snapshots"},
	{"repl", "POST", "/v1/sandboxes/{id}/repl", RoleAgent, "code contexts"},
	{"repl.open", "POST", "/v1/sandboxes/{id}/repl/sessions", RoleAgent, "code contexts"},
	{"repl.list", "GET", "/v1/sandboxes/{id}/repl/sessions", RoleAgent, "code contexts"},
	{"repl.close", "DELETE", "/v1/sandboxes/{id}/repl/sessions/{session}", RoleAgent, "code contexts"},
	{"repl.run", "POST", "/v1/sandboxes/{id}/repl/sessions/{session}/run", RoleAgent, "code contexts"},
	{"volume.list", "GET", "/v1/volumes", RoleAgent, "volumes"},
	{"volume.create", "POST", "/v1/volumes", RoleAgent, "volumes"},
	{"volume.get", "GET", "/v1/volumes/{name}", RoleAgent, "volumes"},
	{"volume.delete", "DELETE", "/v1/volumes/{name}", RoleAgent, "volumes"},
	// PandaStack's SDKs have calls for these; none of them is a sandbox's business.
	{"app.all", "ANY", "/v1/apps", RoleAgent, "apps"},
	{"app.one", "ANY", "/v1/apps/{path...}", RoleAgent, "apps"},
	{"database.all", "ANY", "/v1/databases", RoleAgent, "databases"},
	{"database.one", "ANY", "/v1/databases/{path...}", RoleAgent, "databases"},
	{"function.all", "ANY", "/v1/functions", RoleAgent, "functions"},
	{"function.one", "ANY", "/v1/functions/{path...}", RoleAgent, "functions"},
	{"schedule.all", "ANY", "/v1/schedules", RoleAgent, "schedules"},
	{"schedule.one", "ANY", "/v1/schedules/{path...}", RoleAgent, "schedules"},
	{"mcp", "POST", "/v1/sandboxes/{id}/mcp", RoleAgent, "mcp"},
}

// StreamProtocol is the upgrade of a raw stream to a port inside a sandbox:
// after "101 Switching Protocols" every byte is the program's.
const StreamProtocol = "berm-stream"

// Rank orders roles: a token may use a route whose role ranks no higher.
func Rank(role string) int {
	switch role {
	case "":
		return 0
	case RoleAgent:
		return 1
	case RoleOperator:
		return 2
	case RoleAdmin:
		return 3
	}
	return 99
}
