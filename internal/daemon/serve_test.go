package daemon

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/bermhq/berm/api"
)

// A request that comes while the daemon stops gets an error like any other.
func TestStoppingAnswer(t *testing.T) {
	w := httptest.NewRecorder()
	(&daemon{closing: true}).ServeHTTP(w, httptest.NewRequest("GET", "/v1/sandboxes", nil))
	var e api.Error
	if err := json.Unmarshal(w.Body.Bytes(), &e); err != nil || w.Code != http.StatusServiceUnavailable || w.Header().Get("Content-Type") != "application/json" ||
		e.Code != api.CodeShuttingDown || e.Message == "" || e.Hint == "" || !api.ValidID(e.RequestID) {
		t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
	}
}
