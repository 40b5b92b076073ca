package gateway

import (
	"context"
	"encoding/json"
	"slices"
	"sync"

	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
)

// logLevels are the levels of logging, the most talkative first.
var logLevels = []string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}

// IsLogLevel reports whether the protocol has a level of this name.
func IsLogLevel(level string) bool { return slices.Contains(logLevels, level) }

// wantsLog reports whether somebody who asked for a level wants a message of notifications/message.
// A message of an unknown level is wanted.
func wantsLog(level string, params json.RawMessage) bool {
	if level == "" {
		return false
	}
	o, _ := jsonobj.ParseObject(params)
	said := slices.Index(logLevels, o.Text("level"))
	return said < 0 || said >= slices.Index(logLevels, level)
}

func levelParams(level string) json.RawMessage {
	return jsonobj.Object{{Key: "level", Value: jsonobj.Quote(level)}}.JSON()
}

// logLevel is the level of the logs that a server was asked for; empty for none.
type logLevel struct {
	mu    sync.Mutex
	level string
}

func (l *logLevel) get() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.level
}

func (l *logLevel) set(level string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.level = level
}

// raise asks a legacy server for logs of a level, if that level is more talkative than the last
// one.
func (l *logLevel) raise(ctx context.Context, c *mcp.Client, level string) {
	if now := l.get(); now != "" && slices.Index(logLevels, level) >= slices.Index(logLevels, now) {
		return
	}
	if _, err := c.Call(ctx, mcp.Call{Method: mcp.MethodSetLevel, Params: levelParams(level)}); err == nil {
		l.set(level)
	}
}

// SetLogLevel sets the level of the logs that the server is asked for when it is connected.
func (l *Upstream) SetLogLevel(level string) { l.logs.set(level) }

// SetLevel answers logging/setLevel of a legacy client. A modern server is asked with each request.
func (l *Upstream) SetLevel(ctx context.Context, r *mcp.Request) (json.RawMessage, error) {
	params, err := jsonobj.ParseObject(r.Params)
	level := params.Text("level")
	if l.Client().Era() == mcp.Legacy {
		result, failed := l.forward(ctx, r)
		if failed == nil {
			l.logs.set(level)
		}
		return result, failed
	}
	if err != nil || !IsLogLevel(level) {
		return nil, mcp.Errorf(mcp.CodeInvalidParams, "params: expected a level, one of %q", logLevels)
	}
	l.logs.set(level)
	return json.RawMessage("{}"), nil
}
