package gateway

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/evalrun/evalrun/internal/mcp"
)

// BridgeCommand is the hidden command that connects stdin and stdout with an endpoint of the
// gateway, for agents that know no HTTP. It finds the endpoint and the token in the variables.
const (
	BridgeCommand  = "mcp-bridge"
	BridgeURLVar   = "EVALRUN_MCP_URL"
	BridgeTokenVar = "EVALRUN_MCP_TOKEN"
)

// ErrNotAsked is the error of BridgeMain where nobody has said what to connect.
var ErrNotAsked = errors.New(BridgeURLVar + " and " + BridgeTokenVar +
	" are not set: this is started by agents to which evalrun has given MCP servers")

// BridgeMain does what BridgeCommand is for, until the client ends or a signal comes.
func BridgeMain(ctx context.Context, r io.Reader, w io.Writer) error {
	url, token := os.Getenv(BridgeURLVar), os.Getenv(BridgeTokenVar)
	if url == "" || token == "" {
		return ErrNotAsked
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	return Bridge(ctx, url, token, r, w)
}

// Bridge connects a client that speaks stdio with an endpoint at a URL until the client ends. It
// sends the token for the client.
func Bridge(ctx context.Context, url, token string, r io.Reader, w io.Writer) error {
	header := http.Header{}
	header.Set("Authorization", "Bearer "+token)
	e := NewEndpoint(Server{Name: url, Target: mcp.Target{URL: url, Header: header}}, nil, time.Now)
	defer e.Close()
	return mcp.ServeStdio(ctx, r, w, e, mcp.ServerOptions{})
}
