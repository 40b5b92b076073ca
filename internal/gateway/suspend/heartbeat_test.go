package suspend

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
)

// A plain call that takes long is told of, since some clients give a silent one up after a
// minute.
func TestAPlainCallThatTakesLongIsToldOf(t *testing.T) {
	heard := make(chan json.RawMessage, 100)
	s := startJobServer(t, &jobServer{meta: func(int) string { return "" }, call: func(jsonobj.Object) (string, *mcp.Error) {
		for range 2 { // it goes on until its client was told twice
			select {
			case <-heard:
			case <-time.After(20 * time.Second):
				return "", mcp.Errorf(mcp.CodeInternal, "the client was told nothing")
			}
		}
		return ordinary, nil
	}})
	a := behind(t, s, &memory{}, func(c *Hooks) { c.Progress = 20 * time.Millisecond })
	result, err := a.client.Call(t.Context(), mcp.Call{
		Method: mcp.MethodToolsCall, Params: json.RawMessage(`{"name":"run","arguments":{},"_meta":{"progressToken":"p"}}`),
		Notified: func(method string, params json.RawMessage) {
			if method == mcp.NoteProgress {
				heard <- params
			}
		},
	})
	if err != nil || string(result) != ordinary {
		t.Errorf("got %s, %v", result, err)
	}
}
