package gateway

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
)

// logLevels are the levels of logging, from the most talkative on.
var logLevels = []string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}

// wantsLog reports whether somebody who asked for a level wants a message of notifications/message. An unknown level is the server's business.
func wantsLog(level string, params json.RawMessage) bool {
	if level == "" {
		return false
	}
	o, _ := jsonobj.ParseObject(params)
	said := slices.Index(logLevels, o.Text("level"))
	return said < 0 || said >= slices.Index(logLevels, level)
}

// wantLogs asks a legacy server for logs of a level. The server hears of it only when that is more talkative than what it was told before.
func (l *link) wantLogs(ctx context.Context, c *mcp.Client, level string) {
	if now := l.logLevel(); now != "" && slices.Index(logLevels, level) >= slices.Index(logLevels, now) {
		return
	}
	if _, err := c.Call(ctx, mcp.Call{Method: mcp.MethodSetLevel, Params: levelParams(level)}); err == nil {
		l.setLogLevel(level)
	}
}

func levelParams(level string) json.RawMessage {
	return jsonobj.Object{{Key: "level", Value: jsonobj.Quote(level)}}.JSON()
}

func (l *link) logLevel() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.level
}

func (l *link) setLogLevel(level string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.level = level
}

// setLevel is the legacy way to ask for logs; a modern server is asked with each request.
func (l *link) setLevel(ctx context.Context, r *mcp.Request) (json.RawMessage, error) {
	params, err := jsonobj.ParseObject(r.Params)
	level := params.Text("level")
	if l.client().Era() == mcp.Legacy {
		result, failed := l.forward(ctx, r)
		if failed == nil {
			l.setLogLevel(level)
		}
		return result, failed
	}
	if err != nil || !slices.Contains(logLevels, level) {
		return nil, mcp.Errorf(mcp.CodeInvalidParams, "params: expected a level, one of %q", logLevels)
	}
	l.setLogLevel(level)
	return json.RawMessage("{}"), nil
}
