package suspend

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/evalrun/evalrun/internal/gateway"
	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
	"github.com/evalrun/evalrun/internal/wait"
)

// jobOf finds the handle of a job in the result of a call. Key and folder key must both be strings
// that are not empty; anything else is an ordinary result.
func jobOf(result json.RawMessage) *wait.JobHandle {
	var handle struct {
		Key       *string `json:"key"`
		FolderKey *string `json:"folderKey"`
	}
	raw := mcp.MetaOf(result).Get(gateway.MetaJob)
	if raw == nil || json.Unmarshal(raw, &handle) != nil || handle.Key == nil ||
		handle.FolderKey == nil || *handle.Key == "" || *handle.FolderKey == "" {
		return nil
	}
	return &wait.JobHandle{Key: *handle.Key, FolderKey: *handle.FolderKey}
}

// startMeta adds to a call that its caller can wait for a job.
func startMeta(params json.RawMessage, version int, id string) json.RawMessage {
	params = mcp.WithMeta(params, gateway.MetaJob, json.RawMessage(fmt.Sprintf(`{"version":%d}`, version)))
	return startKey(params, id)
}

// startKey adds the key by which the server recognizes a call that it has had before.
func startKey(params json.RawMessage, id string) json.RawMessage {
	return mcp.WithMeta(params, mcp.MetaIdempotencyKey, jsonobj.Quote(id))
}

// ErrNotDone says that a job that was reported as done gave its handle again instead of a result.
var ErrNotDone = errors.New("the server gave the handle of the job again instead of its result")

// FetchAt gets the result of a job over a connection of its own, because the one over which it was
// started may be long gone. It goes on with the session of that connection, and opens another one
// if the server has forgotten it. An error of the server is an *mcp.Error; a server that cannot be
// reached gives an *UnreachableError. ErrNotDone says that there is no result yet.
func FetchAt(ctx context.Context, e *gateway.Endpoint, w *wait.Work) (json.RawMessage, error) {
	if w.Session != nil {
		c, err := mcp.Connect(ctx, e.Server().Target, mcp.ClientOptions{Session: w.Session, NoStream: true})
		if err == nil {
			result, err := fetch(ctx, c, nil, w)
			if _ = c.Detach(); !errors.Is(err, mcp.ErrSessionLost) { // others may use the session
				return result, err
			}
		}
	}
	l, err := e.OwnUpstream(ctx)
	if err != nil {
		return nil, err
	}
	defer l.Close()
	return fetch(ctx, l.Client(), e.Policy().Capabilities(mcp.Modern, mcp.EmptyObject), w)
}

// Fetch gets the result of a job of a server that nobody is connected with; see [FetchAt].
func Fetch(ctx context.Context, s gateway.Server, w *wait.Work) (json.RawMessage, error) {
	e := gateway.NewEndpoint(s, (&Hooks{}).Policy, time.Now)
	defer e.Close()
	return FetchAt(ctx, e, w)
}

func fetch(ctx context.Context, c *mcp.Client, capabilities json.RawMessage, w *wait.Work) (json.RawMessage, error) {
	handle, err := json.Marshal(w.Job)
	if err != nil {
		return nil, err
	}
	params := jsonobj.Object{
		{Key: "name", Value: jsonobj.Quote(w.Tool)}, {Key: "arguments", Value: json.RawMessage("null")},
		{Key: "_meta", Value: jsonobj.Object{{Key: gateway.MetaJob, Value: handle}}.JSON()},
	}
	result, err := c.Call(ctx, mcp.Call{Method: mcp.MethodToolsCall, Params: params.JSON(), Capabilities: capabilities})
	if err != nil {
		return nil, err
	}
	if again := jobOf(result); again != nil {
		return nil, ErrNotDone
	}
	return result, nil
}

// TextResult is [mcp.TextResult].
func TextResult(text string, isError bool) json.RawMessage { return mcp.TextResult(text, isError) }
