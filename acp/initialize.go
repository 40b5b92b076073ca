package acp

import (
	"context"
	"encoding/json"
	"fmt"
)

// Implementation names a program, ours or the agent.
type Implementation struct {
	Name    string `json:"name"`
	Title   string `json:"title,omitempty"`
	Version string `json:"version"`
}

// InitializeResult is an agent's description of itself.
type InitializeResult struct {
	Capabilities Capabilities
	AuthMethods  []AuthMethod
	Agent        Implementation // empty if the agent does not say
	Raw          json.RawMessage
}

// AuthMethod is a way to authenticate. Type is "" for one that [Conn.Authenticate] can choose.
type AuthMethod struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	Type string `json:"type"`
}

// Capabilities are the abilities of an agent beyond the minimum.
type Capabilities struct {
	LoadSession bool // session/load
	Resume      bool // session/resume
	Close       bool // session/close
	List        bool // session/list
	Fork        bool // session/fork
	Delete      bool // session/delete
	HTTP, SSE   bool // transports of MCP servers
	Raw         json.RawMessage
}

// Accepts reports whether the agent takes MCP servers of a transport. Every agent has to take
// stdio.
func (c Capabilities) Accepts(t Transport) bool {
	switch t {
	case TransportStdio:
		return true
	case TransportHTTP:
		return c.HTTP
	case TransportSSE:
		return c.SSE
	}
	return false
}

// UnmarshalJSON reads agentCapabilities. A capability of a session is an object, and there or not.
func (c *Capabilities) UnmarshalJSON(raw []byte) error {
	var wire struct {
		LoadSession bool `json:"loadSession"`
		MCP         struct {
			HTTP bool `json:"http"`
			SSE  bool `json:"sse"`
		} `json:"mcpCapabilities"`
		Session struct {
			Resume json.RawMessage `json:"resume"`
			Close  json.RawMessage `json:"close"`
			List   json.RawMessage `json:"list"`
			Fork   json.RawMessage `json:"fork"`
			Delete json.RawMessage `json:"delete"`
		} `json:"sessionCapabilities"`
	}
	if err := decode(raw, &wire); err != nil {
		return err
	}
	isObject := func(raw json.RawMessage) bool { return len(raw) > 0 && raw[0] == '{' }
	*c = Capabilities{
		LoadSession: wire.LoadSession,
		Resume:      isObject(wire.Session.Resume),
		Close:       isObject(wire.Session.Close),
		List:        isObject(wire.Session.List),
		Fork:        isObject(wire.Session.Fork),
		Delete:      isObject(wire.Session.Delete),
		HTTP:        wire.MCP.HTTP,
		SSE:         wire.MCP.SSE,
		Raw:         append(json.RawMessage(nil), raw...),
	}
	return nil
}

// clientCapabilities are our own capabilities: the services of [Options], and nothing else.
type clientCapabilities struct {
	FS struct {
		Read  bool `json:"readTextFile"`
		Write bool `json:"writeTextFile"`
	} `json:"fs"`
	Terminal    bool `json:"terminal"`
	Elicitation *struct {
		Form struct{} `json:"form"`
		URL  struct{} `json:"url"`
	} `json:"elicitation,omitempty"`
}

// Initialize opens the conversation; it is the first call. It tells the agent what Options serves.
func (c *Conn) Initialize(ctx context.Context, client Implementation) (InitializeResult, error) {
	const method = "initialize"
	var caps clientCapabilities
	caps.FS.Read = c.opts.Files != nil
	caps.FS.Write = c.opts.Files != nil && !c.opts.Files.readOnly
	caps.Terminal = c.opts.Terminals != nil
	if c.opts.Elicit != nil {
		caps.Elicitation = new(struct {
			Form struct{} `json:"form"`
			URL  struct{} `json:"url"`
		})
	}
	raw, err := c.Call(ctx, method, struct {
		ProtocolVersion int                `json:"protocolVersion"`
		Capabilities    clientCapabilities `json:"clientCapabilities"`
		ClientInfo      Implementation     `json:"clientInfo"`
	}{ProtocolVersion, caps, client})
	if err != nil {
		return InitializeResult{}, err
	}
	var wire struct {
		ProtocolVersion json.RawMessage `json:"protocolVersion"`
		Capabilities    Capabilities    `json:"agentCapabilities"`
		AuthMethods     []AuthMethod    `json:"authMethods"`
		Agent           Implementation  `json:"agentInfo"`
	}
	if err := decodeResult(method, raw, &wire); err != nil {
		return InitializeResult{}, err
	}
	if version := string(wire.ProtocolVersion); version != fmt.Sprint(ProtocolVersion) {
		if version == "" {
			version = "(none)"
		}
		return InitializeResult{}, &ProtocolError{method,
			fmt.Sprintf("the agent speaks protocol version %s, evalrun speaks %d; use a version of the agent that does",
				version, ProtocolVersion)}
	}
	return InitializeResult{wire.Capabilities, wire.AuthMethods, wire.Agent, raw}, nil
}
