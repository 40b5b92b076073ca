package acp

import (
	"encoding/json"
	"fmt"
)

// Transport is how an agent reaches an MCP server, spelled as ACP spells it.
type Transport string

// The transports of ACP version 1. What MCP calls streamable HTTP is "http" here.
const (
	TransportStdio Transport = "stdio"
	TransportHTTP  Transport = "http"
	TransportSSE   Transport = "sse"
)

// KeyValue is an environment variable or a header. Their order is kept.
type KeyValue struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// MCPServer is an MCP server that an agent is to use in a session.
type MCPServer struct {
	Name      string
	Transport Transport

	// Of TransportStdio; the agent starts the command.
	Command string
	Args    []string
	Env     []KeyValue
	// Cwd is sent, but is not part of the protocol: agents start the command where they are
	// themselves. If you need it, wrap the command, as in sh -c 'cd DIR && exec COMMAND'.
	Cwd string

	// Of the other transports.
	URL     string
	Headers []KeyValue

	// Meta is sent as _meta; nil sends none.
	Meta json.RawMessage
}

// Validate says what is wrong with a server. It does not quote values, which may be secret.
func (s MCPServer) Validate() error {
	switch {
	case s.Transport == TransportStdio && s.Command == "":
		return fmt.Errorf("MCP server %q: transport stdio needs a command", s.Name)
	case s.Transport == TransportStdio:
		return nil
	case s.Transport != TransportHTTP && s.Transport != TransportSSE:
		return fmt.Errorf("MCP server %q: transport %q is not one of stdio, http, sse", s.Name, s.Transport)
	case s.URL == "":
		return fmt.Errorf("MCP server %q: transport %s needs a url", s.Name, s.Transport)
	}
	return nil
}

// MarshalJSON returns the server as session/new wants it: a server of stdio has no type, and lists
// are there if empty.
func (s MCPServer) MarshalJSON() ([]byte, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	if s.Transport == TransportStdio {
		return marshal(struct {
			Name    string          `json:"name"`
			Command string          `json:"command"`
			Args    []string        `json:"args"`
			Env     []KeyValue      `json:"env"`
			Cwd     string          `json:"cwd,omitempty"`
			Meta    json.RawMessage `json:"_meta,omitempty"`
		}{s.Name, s.Command, list(s.Args), list(s.Env), s.Cwd, s.Meta})
	}
	return marshal(struct {
		Type    Transport       `json:"type"`
		Name    string          `json:"name"`
		URL     string          `json:"url"`
		Headers []KeyValue      `json:"headers"`
		Meta    json.RawMessage `json:"_meta,omitempty"`
	}{s.Transport, s.Name, s.URL, list(s.Headers), s.Meta})
}

// list returns a list that is printed as [] if it is empty.
func list[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}
