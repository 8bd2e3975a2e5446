package store

import (
	"bytes"
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/audit"
)

// room is what a line takes beside the part of an event that is encoded early.
const room = 512

// tail is api.Event from Type on, in the same order: what is known of an event
// before its turn comes. A test holds the two together.
type tail struct {
	Type      string            `json:"type"`
	Tenant    string            `json:"tenant"`
	Actor     string            `json:"actor"`
	SandboxID string            `json:"sandbox_id,omitempty"`
	RunID     string            `json:"run_id,omitempty"`
	Session   string            `json:"session,omitempty"`
	Tags      map[string]string `json:"tags"`
	Data      json.RawMessage   `json:"data"`
}

// encoded is an event that waits for its turn.
type encoded struct {
	event api.Event
	rest  []byte // {"type":... to the end
}

// encode does what can be done outside the one goroutine that writes.
func encode(e api.Event) (encoded, error) {
	if e.Type == "" {
		return encoded{}, refuse(api.CodeBadRequest, "an event without a type", "")
	}
	if e.Actor == "" {
		e.Actor = "system"
	}
	if e.Tags == nil {
		e.Tags = map[string]string{}
	}
	if len(e.Data) == 0 {
		e.Data = json.RawMessage("{}")
	}
	if !utf8.Valid(e.Data) {
		e.Data = bytes.ToValidUTF8(e.Data, []byte("\ufffd"))
	}
	if e.ID == "" {
		e.ID = api.NewID(api.KindEvent)
	}
	if !api.ValidID(e.ID) {
		return encoded{}, refuse(api.CodeBadRequest, "an event with an id that is none", "")
	}
	rest, err := audit.Encode(tail{e.Type, e.Tenant, e.Actor, e.SandboxID, e.RunID, e.Session, e.Tags, e.Data})
	if err != nil {
		return encoded{}, refuse(api.CodeBadRequest, "event "+e.Type+": its data is not JSON: "+err.Error(), "")
	}
	if !json.Valid(rest) { // nested too deep to be read back
		return encoded{}, refuse(api.CodeBadRequest, "event "+e.Type+": its data is nested too deep", "")
	}
	if d := bytes.TrimLeft(e.Data, " \t\r\n"); d[0] != '{' {
		return encoded{}, refuse(api.CodeBadRequest, "event "+e.Type+": its data is not an object", "")
	}
	if len(rest)+room > audit.MaxLine {
		return encoded{}, refuse(api.CodeTooLarge, fmt.Sprintf("event %s: %d bytes are more than the audit log takes", e.Type, len(rest)),
			"send less: what is asked for must fit into one record")
	}
	return encoded{event: e, rest: rest}, nil
}

// body is the event as it is written.
func (e *encoded) body(seq uint64, time string) []byte {
	e.event.Seq, e.event.Time = seq, time
	b := make([]byte, 0, len(e.rest)+128)
	b = append(b, `{"id":"`...)
	b = append(b, e.event.ID...)
	b = fmt.Appendf(b, `","seq":%d,"time":"%s",`, seq, time)
	return append(b, e.rest[1:]...)
}

func refuse(code, message, hint string) error {
	return &api.Error{Code: code, Message: message, Hint: hint}
}
