package acp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/evalrun/evalrun/internal/jsonobj"
)

// SessionParams are the parameters of a session, new or continued.
type SessionParams struct {
	// Cwd is an absolute path.
	Cwd        string
	MCPServers []MCPServer
	// Meta is sent as _meta; nil sends none. Some agents take settings there (codex:
	// mcpStartupAwaitTimeoutMs).
	Meta json.RawMessage
}

// Session is a session as the agent describes it.
type Session struct {
	ID            string         `json:"-"`
	Modes         *Modes         `json:"modes"`
	Models        *Models        `json:"models"` // in no schema, but sent by codex, gemini and qwen
	ConfigOptions []ConfigOption `json:"configOptions"`

	Raw json.RawMessage `json:"-"`
}

// Modes are the modes of a session.
type Modes struct {
	Current   string `json:"currentModeId"`
	Available []struct {
		ID   string `json:"id"`
		Name string `json:"name"`
	} `json:"availableModes"`
}

// Models are the models of a session, for [Conn.SetModel].
type Models struct {
	Current   string `json:"currentModelId"`
	Available []struct {
		ID   string `json:"modelId"`
		Name string `json:"name"`
	} `json:"availableModels"`
}

// ConfigOption is a setting of a session, for [Conn.SetConfigOption].
type ConfigOption struct {
	ID       string          `json:"id"`
	Name     string          `json:"name"`
	Type     string          `json:"type"`
	Category string          `json:"category"`
	Current  json.RawMessage `json:"currentValue"`
	Options  json.RawMessage `json:"options"`
}

// CategoryModel is the Category of the option that chooses the session's model.
const CategoryModel = "model"

// Values are the ids of the values that a ConfigOption may have, those of its groups included.
func (o ConfigOption) Values() (ids []string) {
	var list []struct {
		Value   string          `json:"value"`
		Options json.RawMessage `json:"options"`
	}
	if json.Unmarshal(o.Options, &list) != nil {
		return nil // a bool has none
	}
	for _, one := range list {
		if one.Value != "" {
			ids = append(ids, one.Value)
		}
		ids = append(ids, ConfigOption{Options: one.Options}.Values()...)
	}
	return ids
}

// SessionInfo is a session as an agent lists it.
type SessionInfo struct {
	ID    string `json:"sessionId"`
	Cwd   string `json:"cwd"`
	Title string `json:"title"`
}

// ContentBlock is a part of a prompt.
type ContentBlock struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

// Text is a text in a prompt, the only content that every agent takes.
func Text(s string) ContentBlock { return ContentBlock{"text", s} }

// PromptResult says how a turn ended. StopReason is the agent's own; several say end_turn after
// their model failed.
type PromptResult struct {
	StopReason string
	Usage      json.RawMessage // unstable in v1
	Raw        json.RawMessage
}

// The reasons that the protocol knows for the end of a turn.
const (
	StopEndTurn         = "end_turn"
	StopMaxTokens       = "max_tokens"
	StopMaxTurnRequests = "max_turn_requests"
	StopRefusal         = "refusal"
	StopCancelled       = "cancelled"
)

// Authenticate chooses one of the agent's AuthMethods.
func (c *Conn) Authenticate(ctx context.Context, methodID string) error {
	_, err := c.Call(ctx, "authenticate", map[string]string{"methodId": methodID})
	return err
}

// NewSession starts a session. An agent does not say if an MCP server cannot be reached: it prompts
// without its tools.
func (c *Conn) NewSession(ctx context.Context, p SessionParams) (Session, error) {
	const method = "session/new"
	s, err := c.session(ctx, method, "", p)
	if err != nil {
		return Session{}, err
	}
	if s.ID = sessionIDOf(s.Raw); s.ID == "" {
		return Session{}, &ProtocolError{method, "the agent's answer has no sessionId"}
	}
	return s, nil
}

// LoadSession continues a session. Its history comes as updates before LoadSession returns; gemini
// sends it afterwards.
func (c *Conn) LoadSession(ctx context.Context, sessionID string, p SessionParams) (Session, error) {
	return c.session(ctx, "session/load", sessionID, p)
}

// ResumeSession continues a session without its history being sent.
func (c *Conn) ResumeSession(ctx context.Context, sessionID string, p SessionParams) (Session, error) {
	return c.session(ctx, "session/resume", sessionID, p)
}

// ForkSession starts a session that has the history of another one, which stays as it is. Ask only if
// Capabilities.Fork.
func (c *Conn) ForkSession(ctx context.Context, sessionID string, p SessionParams) (Session, error) {
	const method = "session/fork"
	s, err := c.session(ctx, method, sessionID, p)
	if err != nil {
		return Session{}, err
	}
	if s.ID = sessionIDOf(s.Raw); s.ID == "" || s.ID == sessionID {
		return Session{}, &ProtocolError{method, "the agent's answer has no sessionId of its own"}
	}
	return s, nil
}

// ListSessions lists the sessions of a folder, or all if cwd is empty. next is the cursor for the
// rest of them; empty if there is no more. Ask only if Capabilities.List.
func (c *Conn) ListSessions(ctx context.Context, cwd, cursor string) (sessions []SessionInfo, next string, err error) {
	const method = "session/list"
	raw, err := c.Call(ctx, method, struct {
		Cwd    string `json:"cwd,omitempty"`
		Cursor string `json:"cursor,omitempty"`
	}{cwd, cursor})
	if err != nil {
		return nil, "", err
	}
	var wire struct {
		Sessions []SessionInfo `json:"sessions"`
		Next     string        `json:"nextCursor"`
	}
	err = decodeResult(method, raw, &wire)
	return wire.Sessions, wire.Next, err
}

// DeleteSession deletes a session for good. Ask only if Capabilities.Delete.
func (c *Conn) DeleteSession(ctx context.Context, sessionID string) error {
	_, err := c.Call(ctx, "session/delete", map[string]string{"sessionId": sessionID})
	return err
}

func (c *Conn) session(ctx context.Context, method, sessionID string, p SessionParams) (Session, error) {
	if !filepath.IsAbs(p.Cwd) {
		return Session{}, fmt.Errorf("%s: cwd %q is not an absolute path", method, p.Cwd)
	}
	if method != "session/new" && sessionID == "" {
		return Session{}, fmt.Errorf("%s: the id of the session is missing", method)
	}
	servers := p.MCPServers
	if servers == nil {
		servers = []MCPServer{} // the key is required
	}
	for _, s := range servers {
		if err := s.Validate(); err != nil {
			return Session{}, fmt.Errorf("%s: %w", method, err)
		}
	}
	meta := p.Meta
	if meta == nil {
		meta = c.traceMeta()
	}
	raw, err := c.Call(ctx, method, struct {
		SessionID  string          `json:"sessionId,omitempty"`
		Cwd        string          `json:"cwd"`
		MCPServers []MCPServer     `json:"mcpServers"`
		Meta       json.RawMessage `json:"_meta,omitempty"`
	}{sessionID, p.Cwd, servers, meta})
	if err != nil {
		return Session{}, err
	}
	s := Session{ID: sessionID, Raw: raw}
	if jsonobj.IsNull(raw) && sessionID != "" {
		return s, nil // as session/load may answer
	}
	return s, decodeResult(method, raw, &s)
}

// traceMeta returns a _meta with the trace alone, nil if there is none.
func (c *Conn) traceMeta() json.RawMessage {
	if c.opts.Traceparent == "" {
		return nil
	}
	meta, _ := json.Marshal(map[string]string{"traceparent": c.opts.Traceparent}) // a text
	return meta
}

// CloseSession ends a session that the agent keeps in memory. Ask only if Capabilities.Close.
func (c *Conn) CloseSession(ctx context.Context, sessionID string) error {
	_, err := c.Call(ctx, "session/close", map[string]string{"sessionId": sessionID})
	return err
}

// SetMode chooses one of Session.Modes.
func (c *Conn) SetMode(ctx context.Context, sessionID, modeID string) error {
	_, err := c.Call(ctx, "session/set_mode", map[string]string{"sessionId": sessionID, "modeId": modeID})
	return err
}

// SetModel chooses one of Session.Models. The method was taken out of version 1, but agents still
// serve it.
func (c *Conn) SetModel(ctx context.Context, sessionID, modelID string) error {
	_, err := c.Call(ctx, "session/set_model", map[string]string{"sessionId": sessionID, "modelId": modelID})
	return err
}

// SetConfigOption sets one of Session.ConfigOptions, to a string (the id of a value) or a bool, and
// returns them all.
func (c *Conn) SetConfigOption(ctx context.Context, sessionID, configID string, value any) ([]ConfigOption, error) {
	const method = "session/set_config_option"
	params := map[string]any{"sessionId": sessionID, "configId": configID, "value": value}
	switch value.(type) {
	case string:
	case bool:
		params["type"] = "boolean"
	default:
		return nil, fmt.Errorf("%s: %s can be set to a string or a bool, not to the type %T", method, configID, value)
	}
	raw, err := c.Call(ctx, method, params)
	if err != nil {
		return nil, err
	}
	var s Session
	err = decodeResult(method, raw, &s)
	return s.ConfigOptions, err
}

// Prompt runs a turn and returns how it ended. A session takes one prompt at a time: agents differ
// in what they do with a second one. When ctx ends the turn goes on; see [Conn.Cancel].
func (c *Conn) Prompt(ctx context.Context, sessionID string, prompt ...ContentBlock) (PromptResult, error) {
	const method = "session/prompt"
	if sessionID == "" {
		return PromptResult{}, errors.New(method + ": there is no session yet")
	}
	c.server.resume(sessionID)
	raw, err := c.Call(ctx, method, struct {
		SessionID string          `json:"sessionId"`
		Prompt    []ContentBlock  `json:"prompt"`
		Meta      json.RawMessage `json:"_meta,omitempty"`
	}{sessionID, prompt, c.traceMeta()})
	if err != nil {
		return PromptResult{}, err
	}
	result := PromptResult{Raw: raw}
	size := jsonobj.Members(raw, func(key, value []byte) {
		switch string(key) {
		case "stopReason":
			result.StopReason, _ = jsonobj.Unquote(value)
		case "usage":
			result.Usage = value
		}
	})
	if size < 0 {
		return PromptResult{}, notAnObject(method)
	}
	if result.StopReason == "" {
		return PromptResult{}, &ProtocolError{method, "the agent's answer has no stopReason"}
	}
	return result, nil
}

// Cancel asks the agent to end a turn, which then returns StopCancelled. Permission requests of the
// session are answered as cancelled.
func (c *Conn) Cancel(ctx context.Context, sessionID string) error {
	c.server.withdrawPermissions(sessionID)
	return c.Notify(ctx, "session/cancel", map[string]string{"sessionId": sessionID})
}

// decodeResult decodes the answer to a call, which has to be an object.
func decodeResult(method string, raw json.RawMessage, v any) error {
	if len(raw) == 0 || raw[0] != '{' {
		return notAnObject(method)
	}
	if err := decode(raw, v); err != nil {
		return &ProtocolError{method, "the agent's answer: " + err.Error()}
	}
	return nil
}

func notAnObject(method string) error {
	return &ProtocolError{method, "the agent's answer is no object"}
}
