package api

import "net/http"

// Error is what leaves Berm when something is refused or fails: what, why, and
// what to do next.
type Error struct {
	Code      string `json:"code"`  // noun.reason, from the table below
	Message   string `json:"error"` // what failed and why
	Hint      string `json:"hint"`  // what to do next; a command where there is one
	RequestID string `json:"request_id,omitempty"`
}

func (e *Error) Error() string { return e.Message }

// The error codes, with the HTTP status of each.
const (
	CodeBadRequest         = "request.invalid"
	CodeTooLarge           = "request.too-large"
	CodeNoRoute            = "request.no-route"
	CodeInterrupted        = "request.interrupted"
	CodeUnknownIsolation   = "isolation.unknown"
	CodeRungUnavailable    = "isolation.unavailable"
	CodeCapUnenforceable   = "limit.unenforceable"
	CodeLimitInvalid       = "limit.invalid"
	CodeTemplateNotFound   = "template.not-found"
	CodeTemplateInvalid    = "template.invalid"
	CodeTemplateTooLarge   = "template.too-large"
	CodeInterpreterMissing = "interpreter.missing"
	CodeSandboxNotFound    = "sandbox.not-found"
	CodeSandboxEnded       = "sandbox.ended"
	CodeFileNotFound       = "file.not-found"
	CodeFileRefused        = "file.refused"
	CodeFileTooLarge       = "file.too-large"
	CodeGuestProtocol      = "guest.protocol"
	CodeGuestSilent        = "guest.silent"
	CodeHostFailure        = "host.failure"
)

var statuses = map[string]int{
	CodeBadRequest:         http.StatusBadRequest,
	CodeTooLarge:           http.StatusRequestEntityTooLarge,
	CodeNoRoute:            http.StatusNotFound,
	CodeInterrupted:        499, // the caller left; has no name in net/http
	CodeUnknownIsolation:   http.StatusBadRequest,
	CodeRungUnavailable:    http.StatusUnprocessableEntity,
	CodeCapUnenforceable:   http.StatusUnprocessableEntity,
	CodeLimitInvalid:       http.StatusBadRequest,
	CodeTemplateNotFound:   http.StatusNotFound,
	CodeTemplateInvalid:    http.StatusUnprocessableEntity,
	CodeTemplateTooLarge:   http.StatusUnprocessableEntity,
	CodeInterpreterMissing: http.StatusUnprocessableEntity,
	CodeSandboxNotFound:    http.StatusNotFound,
	CodeSandboxEnded:       http.StatusGone,
	CodeFileNotFound:       http.StatusNotFound,
	CodeFileRefused:        http.StatusForbidden,
	CodeFileTooLarge:       http.StatusRequestEntityTooLarge,
	CodeGuestProtocol:      http.StatusBadGateway,
	CodeGuestSilent:        http.StatusGatewayTimeout,
	CodeHostFailure:        http.StatusInternalServerError,
}

// Status is the HTTP status of a code; an unknown code is a host failure.
func Status(code string) int {
	if s, ok := statuses[code]; ok {
		return s
	}
	return http.StatusInternalServerError
}

// Codes lists every error code.
func Codes() []string {
	out := make([]string, 0, len(statuses))
	for c := range statuses {
		out = append(out, c)
	}
	return out
}
