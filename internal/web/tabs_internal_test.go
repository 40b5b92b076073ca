package web

import (
	"net/http/httptest"
	"strings"
	"testing"
)

// A stream of several that panics must not end the process: it is the handler that panics.
func TestAStreamThatPanicsEndsItsRequestAlone(t *testing.T) {
	t.Parallel()
	p := &livePages{site: new(site)} // without a service a run cannot be looked for
	defer func() {
		if text, _ := recover().(string); !strings.Contains(text, "nil pointer") || !strings.Contains(text, "tabs.go") {
			t.Errorf("the handler panics with %q", text)
		}
	}()
	_ = p.tabs(httptest.NewRecorder(), httptest.NewRequest("GET", "/tabs?of=/runs/x/live&since=0", nil))
}
