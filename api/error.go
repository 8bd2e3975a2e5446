package api

import "net/http"

// Error is what leaves Berm when something is refused or fails: what, why, and
// what to do next.
type Error struct {
	Code      string `json:"code"`  // noun.reason, from the table below
	Message   string `json:"error"` // what failed and why
	Hint      string `json:"hint"`  // what to do next; a command where there is one
	RequestID string `json:"request_id,omitempty"`
	Detail    string `json:"detail,omitempty"` // of a 401, where some clients look for the text
	// RetryAfter is how many seconds to wait before the same request may
	// succeed; 0: waiting does not help. It is also the Retry-After header.
	RetryAfter int `json:"retry_after_seconds,omitempty"`
}

func (e *Error) Error() string { return e.Message }

// The error codes, with the HTTP status of each.
const (
	CodeBadRequest          = "request.invalid"
	CodeTooLarge            = "request.too-large"
	CodeNoRoute             = "request.no-route"
	CodeMethod              = "request.method" // the path is a route, but not with this method
	CodeInterrupted         = "request.interrupted"
	CodeUnknownIsolation    = "isolation.unknown"
	CodeRungUnavailable     = "isolation.unavailable"
	CodeCapUnenforceable    = "limit.unenforceable"
	CodeLimitInvalid        = "limit.invalid"
	CodeTemplateNotFound    = "template.not-found"
	CodeTemplateInvalid     = "template.invalid"
	CodeTemplateTooLarge    = "template.too-large"
	CodeTemplateExists      = "template.exists"
	CodeTemplateInUse       = "template.in-use"
	CodeBuildFailed         = "template.build-failed"
	CodeBuildNotFound       = "template.build-not-found"
	CodeRegistryDenied      = "registry.denied"
	CodeRegistryUnreachable = "registry.unreachable"
	CodeInterpreterMissing  = "interpreter.missing"
	CodeSandboxNotFound     = "sandbox.not-found"
	CodeSandboxEnded        = "sandbox.ended"
	CodeFileNotFound        = "file.not-found"
	CodeFileRefused         = "file.refused"
	CodeFileTooLarge        = "file.too-large"
	CodeGuestProtocol       = "guest.protocol"
	CodeGuestSilent         = "guest.silent"
	CodeHostFailure         = "host.failure"
	CodeTokenMissing        = "token.missing"
	CodeTokenInvalid        = "token.invalid" // unknown, revoked or expired: all alike
	CodeTokenForbidden      = "token.forbidden"
	CodeTokenNotFound       = "token.not-found"
	CodeOriginForbidden     = "request.origin" // a Host or Origin header that is not ours
	CodePolicyCeiling       = "policy.ceiling"
	CodeQuota               = "quota.exceeded" // only the end of one of their own helps
	CodeRate                = "quota.rate"     // waiting does
	CodeNodeFull            = "node.full"
	CodeSandboxPaused       = "sandbox.paused"
	CodeSandboxState        = "sandbox.state"       // cannot do that in this state
	CodeSandboxNotTracked   = "sandbox.not-tracked" // it was created without track
	CodeWorkspaceNotFound   = "workspace.not-found"
	CodeWorkspaceTooLarge   = "workspace.too-large"
	CodeExecNotFound        = "exec.not-found"
	CodeExecConflict        = "exec.conflict"
	CodeSessionConflict     = "session.conflict"
	CodeKeyConflict         = "request.key-conflict" // an Idempotency-Key with another request
	CodeFileExists          = "file.exists"
	CodeFileKind            = "file.kind" // a directory where a file is needed, or the other way round
	CodePortClosed          = "port.closed"
	CodePolicyInvalid       = "policy.invalid"
	CodePolicyWider         = "policy.wider"   // only an operator widens
	CodeEgressNoLink        = "egress.no-link" // it was created without one
	CodeEgressUnavailable   = "egress.unavailable"
	CodeUnavailable         = "feature.unavailable" // a part of Berm that is not there yet
	CodeAuditFailed         = "audit.failed"        // what cannot be recorded is not done
	CodeShuttingDown        = "daemon.stopping"
)

var statuses = map[string]int{
	CodeBadRequest:          http.StatusBadRequest,
	CodeTooLarge:            http.StatusRequestEntityTooLarge,
	CodeNoRoute:             http.StatusNotFound,
	CodeMethod:              http.StatusMethodNotAllowed,
	CodeInterrupted:         499, // the caller left; has no name in net/http
	CodeUnknownIsolation:    http.StatusBadRequest,
	CodeRungUnavailable:     http.StatusUnprocessableEntity,
	CodeCapUnenforceable:    http.StatusUnprocessableEntity,
	CodeLimitInvalid:        http.StatusBadRequest,
	CodeTemplateNotFound:    http.StatusNotFound,
	CodeTemplateInvalid:     http.StatusUnprocessableEntity,
	CodeTemplateTooLarge:    http.StatusUnprocessableEntity,
	CodeTemplateExists:      http.StatusConflict,
	CodeTemplateInUse:       http.StatusConflict,
	CodeBuildFailed:         http.StatusUnprocessableEntity,
	CodeBuildNotFound:       http.StatusNotFound,
	CodeRegistryDenied:      http.StatusForbidden,
	CodeRegistryUnreachable: http.StatusBadGateway,
	CodeInterpreterMissing:  http.StatusUnprocessableEntity,
	CodeSandboxNotFound:     http.StatusNotFound,
	CodeSandboxEnded:        http.StatusGone,
	CodeFileNotFound:        http.StatusNotFound,
	CodeFileRefused:         http.StatusForbidden,
	CodeFileTooLarge:        http.StatusRequestEntityTooLarge,
	CodeGuestProtocol:       http.StatusBadGateway,
	CodeGuestSilent:         http.StatusGatewayTimeout,
	CodeHostFailure:         http.StatusInternalServerError,
	CodeTokenMissing:        http.StatusUnauthorized,
	CodeTokenInvalid:        http.StatusUnauthorized,
	CodeTokenForbidden:      http.StatusForbidden,
	CodeTokenNotFound:       http.StatusNotFound,
	CodeOriginForbidden:     http.StatusForbidden,
	CodePolicyCeiling:       http.StatusForbidden,
	CodeQuota:               http.StatusTooManyRequests,
	CodeRate:                http.StatusTooManyRequests,
	CodeNodeFull:            http.StatusInsufficientStorage,
	CodeSandboxPaused:       http.StatusConflict,
	CodeSandboxState:        http.StatusConflict,
	CodeSandboxNotTracked:   http.StatusConflict,
	CodeWorkspaceNotFound:   http.StatusNotFound,
	CodeWorkspaceTooLarge:   http.StatusRequestEntityTooLarge,
	CodeExecNotFound:        http.StatusNotFound,
	CodeExecConflict:        http.StatusConflict,
	CodeSessionConflict:     http.StatusConflict,
	CodeKeyConflict:         http.StatusConflict,
	CodeFileExists:          http.StatusConflict,
	CodeFileKind:            http.StatusBadRequest,
	CodePortClosed:          http.StatusBadGateway,
	CodePolicyInvalid:       http.StatusBadRequest,
	CodePolicyWider:         http.StatusForbidden,
	CodeEgressNoLink:        http.StatusConflict,
	CodeEgressUnavailable:   http.StatusNotImplemented,
	CodeUnavailable:         http.StatusNotImplemented,
	CodeAuditFailed:         http.StatusServiceUnavailable,
	CodeShuttingDown:        http.StatusServiceUnavailable,
}

// Status is the HTTP status of a code; an unknown code is a host failure.
func Status(code string) int {
	if s, ok := statuses[code]; ok {
		return s
	}
	return http.StatusInternalServerError
}

// hints is what to do about an error that says no better itself.
var hints = map[string]string{
	CodeBadRequest:          "/openapi.yaml says what each route takes",
	CodeTooLarge:            "send less at once; files and archives have routes without a bound",
	CodeNoRoute:             "GET /v1/routes lists them",
	CodeMethod:              "GET /v1/routes lists them",
	CodeInterrupted:         "ask again",
	CodeUnknownIsolation:    "berm doctor",
	CodeRungUnavailable:     "berm doctor",
	CodeCapUnenforceable:    "berm doctor",
	CodeLimitInvalid:        "ask for less, or leave it out for the default",
	CodeTemplateNotFound:    "berm template ls",
	CodeTemplateInvalid:     "berm template ls",
	CodeTemplateTooLarge:    "leave out what the template does not need",
	CodeTemplateExists:      "choose another name, or replace it: --replace",
	CodeTemplateInUse:       "berm ls; then berm kill SANDBOX, for those that use it",
	CodeBuildFailed:         "see the lines of the step that failed",
	CodeBuildNotFound:       "GET /v1/templates/builds lists them",
	CodeRegistryDenied:      "docker login REGISTRY, or podman login REGISTRY: what they keep is used",
	CodeRegistryUnreachable: "check the name and the network; HTTPS_PROXY names a proxy",
	CodeInterpreterMissing:  "berm template ls",
	CodeSandboxNotFound:     "berm ls --all",
	CodeSandboxEnded:        "berm create; of the one that ended, berm info --report SANDBOX tells why",
	CodeFileNotFound:        "berm fs ls SANDBOX:PATH",
	CodeFileRefused:         "berm fs stat SANDBOX:PATH",
	CodeFileTooLarge:        "berm cp, which has no bound",
	CodeFileExists:          "choose another name, or remove it first: berm fs rm SANDBOX:PATH",
	CodeFileKind:            "berm fs stat SANDBOX:PATH",
	CodeGuestProtocol:       "berm kill SANDBOX, and create another",
	CodeGuestSilent:         "try again; if it stays silent, berm kill SANDBOX",
	CodeHostFailure:         "berm doctor",
	CodeTokenMissing:        "send the header Authorization: Bearer TOKEN; berm token create makes one",
	CodeTokenInvalid:        "berm token create",
	CodeTokenForbidden:      "use a token of another role or tenant: berm token create",
	CodeTokenNotFound:       "berm token ls",
	CodeOriginForbidden:     "call it by the address that it listens on, from a program",
	CodePolicyCeiling:       "ask for less, or use a token with a higher ceiling",
	CodeQuota:               "berm ls; then berm kill SANDBOX, for one that nobody needs",
	CodeRate:                "wait, as long as Retry-After says",
	CodeNodeFull:            "berm kill SANDBOX, for one that nobody needs; or ask for less memory",
	CodeSandboxPaused:       "berm resume SANDBOX",
	CodeSandboxState:        "berm info SANDBOX",
	CodeSandboxNotTracked:   "create the sandbox with track, or with a workspace",
	CodeWorkspaceNotFound:   "upload the tree again, without a parent",
	CodeWorkspaceTooLarge:   "leave out what the sandbox does not need",
	CodeExecNotFound:        "berm ps --all SANDBOX",
	CodeExecConflict:        "use a new exec_id for a new command",
	CodeSessionConflict:     "create a sandbox for this session",
	CodeKeyConflict:         "use a new key for a new request",
	CodePortClosed:          "berm port SANDBOX",
	CodePolicyInvalid:       "berm help policy",
	CodePolicyWider:         "ask for less, or use an operator's token",
	CodeEgressNoLink:        "create the sandbox with egress; [] is a link on which all is denied, and can be changed later",
	CodeEgressUnavailable:   "leave egress out: there is no link at all",
	CodeUnavailable:         "GET /v1/routes says what is there",
	CodeAuditFailed:         "see the daemon's log; a full disk is the usual cause",
	CodeShuttingDown:        "ask again when the daemon is back",
}

// Hint is what to do about an error of this code, in general.
func Hint(code string) string {
	if h, ok := hints[code]; ok {
		return h
	}
	return hints[CodeHostFailure]
}

// Codes lists every error code.
func Codes() []string {
	out := make([]string, 0, len(statuses))
	for c := range statuses {
		out = append(out, c)
	}
	return out
}
