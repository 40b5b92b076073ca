package gateway

import (
	"context"
	"io"
	"net/http"
	"time"

	"github.com/evalrun/evalrun/internal/mcp"
)

// Bridge connects a client that speaks stdio with an endpoint at a URL until the client ends. It
// sends the token for the client.
func Bridge(ctx context.Context, url, token string, r io.Reader, w io.Writer) error {
	header := http.Header{}
	header.Set("Authorization", "Bearer "+token)
	e := NewEndpoint(Server{Name: url, Target: mcp.Target{URL: url, Header: header}}, nil, time.Now)
	defer e.Close()
	return mcp.ServeStdio(ctx, r, w, e, mcp.ServerOptions{})
}
