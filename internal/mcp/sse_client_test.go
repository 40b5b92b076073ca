package mcp

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/evalrun/evalrun/internal/testenv"
)

// A server of the transport of 2024-11-05 is found at a URL of which nobody has said that.
func TestClientFallsBackToSSE(t *testing.T) {
	server := sdk.NewServer(&sdk.Implementation{Name: "old", Version: "1"}, nil)
	sse := httptest.NewServer(sdk.NewSSEHandler(func(*http.Request) *sdk.Server { return server }, nil))
	t.Cleanup(sse.Close)
	for _, first := range []Era{Legacy, Modern} {
		c := clientDial(t, Target{URL: sse.URL}, ClientOptions{First: first})
		if c.Era() != Legacy || !strings.Contains(string(c.InitializeResult()), `"old"`) {
			t.Errorf("%s: %s", c.Era(), c.InitializeResult())
		}
	}
	// What is said of a server that is neither is what it answered first.
	none := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(none.Close)
	var status *StatusError
	if _, err := Connect(clientSoon(t), Target{URL: none.URL}, ClientOptions{}); !errors.As(err, &status) || status.Status != http.StatusNotFound {
		t.Error(err)
	}
}

func TestClientEndsWithTheStreamOfAnSSEServer(t *testing.T) {
	began := make(chan struct{}, 1)
	s := clientServe(t, func(x clientExchange) {
		if x.r.Method == http.MethodPost {
			began <- struct{}{}
			x.w.WriteHeader(202)
			return
		}
		x.stream()
		x.write("event: endpoint\ndata: messages?id=1\n\n")
		select {
		case <-began:
			x.event("", `{"jsonrpc":"2.0","id":1,"result":`+initializeAnswer+`}`)
			<-began // initialized
			<-began // the call
		case <-x.r.Context().Done():
		}
	})
	c := clientDial(t, Target{URL: s.URL + "/mcp/sse", SSE: true}, ClientOptions{})
	if _, err := c.Call(clientSoon(t), Call{Method: "x"}); !errors.Is(err, ErrClosed) {
		t.Errorf("the error is %v", err)
	}
	testenv.Receive(t, c.Done())
}

func TestClientRefusesAnEndpointElsewhere(t *testing.T) {
	s := clientServe(t, func(x clientExchange) {
		x.w.Header().Set("Content-Type", clientSSE)
		x.write("event: endpoint\ndata: http://example.com/messages\n\n")
	})
	if _, err := Connect(clientSoon(t), Target{URL: s.URL, SSE: true}, ClientOptions{}); err == nil || !strings.Contains(err.Error(), "example.com is not on the server") {
		t.Errorf("the error is %v", err)
	}
}
