package gateway

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
)

// LogLevels are the levels of logging, from the most talkative on.
var LogLevels = []string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}

// wantsLog reports whether somebody who asked for a level wants a message of notifications/message. An unknown level is the server's business.
func wantsLog(level string, params json.RawMessage) bool {
	if level == "" {
		return false
	}
	o, _ := jsonobj.ParseObject(params)
	said := slices.Index(LogLevels, o.Text("level"))
	return said < 0 || said >= slices.Index(LogLevels, level)
}

// wantLogs asks a legacy server for logs of a level. The server hears of it only when that is more talkative than what it was told before.
func (l *Upstream) wantLogs(ctx context.Context, c *mcp.Client, level string) {
	if now := l.logLevel(); now != "" && slices.Index(LogLevels, level) >= slices.Index(LogLevels, now) {
		return
	}
	if _, err := c.Call(ctx, mcp.Call{Method: mcp.MethodSetLevel, Params: levelParams(level)}); err == nil {
		l.SetLogLevel(level)
	}
}

func levelParams(level string) json.RawMessage {
	return jsonobj.Object{{Key: "level", Value: jsonobj.Quote(level)}}.JSON()
}

func (l *Upstream) logLevel() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.level
}

func (l *Upstream) SetLogLevel(level string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.level = level
}

// SetLevel is the legacy way to ask for logs; a modern server is asked with each request.
func (l *Upstream) SetLevel(ctx context.Context, r *mcp.Request) (json.RawMessage, error) {
	params, err := jsonobj.ParseObject(r.Params)
	level := params.Text("level")
	if l.Client().Era() == mcp.Legacy {
		result, failed := l.forward(ctx, r)
		if failed == nil {
			l.SetLogLevel(level)
		}
		return result, failed
	}
	if err != nil || !slices.Contains(LogLevels, level) {
		return nil, mcp.Errorf(mcp.CodeInvalidParams, "params: expected a level, one of %q", LogLevels)
	}
	l.SetLogLevel(level)
	return json.RawMessage("{}"), nil
}
