// Package standalone is the gateway as a program of its own. It serves the MCP servers of a file to
// any MCP client, over HTTP or on two streams. It has the gateway's token, its lock, the processes
// of its servers, its log and its numbers. It knows no flags and prints nothing.
package standalone

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/evalrun/evalrun/internal/gateway"
	"github.com/evalrun/evalrun/internal/gateway/catalog"
	mcptasks "github.com/evalrun/evalrun/internal/gateway/tasks"
	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/internal/sandbox"
	"github.com/evalrun/evalrun/internal/store"
)

// AggregateName is the name of the endpoint that has what all servers have.
const AggregateName = "all"

// Options say how servers are served.
type Options struct {
	// Listen is the address for clients over HTTP. Other machines may reach it only with AllowRemote.
	Listen      string
	AllowRemote bool
	// TokenFile has the token of the clients over HTTP. If it is empty, the token is kept beside the
	// store.
	TokenFile string
	// Aggregate makes an endpoint of all servers, AggregateName.
	Aggregate bool
	// Tasks say how long tasks are kept, and how many. Their store is set here.
	Tasks mcptasks.Options
	// MaxSessions is how many sessions one stdio server may have.
	MaxSessions int
	// RequestLog is a file with a line for each request; - means Stderr, and empty none.
	RequestLog string
	// Stderr gets what the servers' processes write there.
	Stderr io.Writer
	// Notice is called with what a person should know, Warn with what is dangerous or does not work.
	Notice, Warn func(text string)
}

// Store keeps tasks and sessions.
type Store interface {
	store.Place
	store.MCPTasks
}

// Endpoint is what a client over HTTP needs to know of a server.
type Endpoint struct{ Name, URL, Token string }

// Serve serves clients over HTTP until the context ends. It calls ready once it serves.
func (c *Config) Serve(ctx context.Context, st Store, o Options, ready func([]Endpoint) error) (err error) {
	token, err := tokenOf(o.TokenFile, st.Dir())
	if err != nil {
		return err
	}
	mark, unlock, err := lock(st, token)
	if err != nil {
		return err
	}
	defer unlock()
	if n, err := sandbox.Sweep(mark); err != nil {
		return err
	} else if n > 0 {
		o.Notice(fmt.Sprintf("ended what an earlier gateway had left running of its MCP servers: %d processes", n))
	}
	log, endLog, err := openLog(o.RequestLog, o.Stderr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, endLog()) }()
	gw, err := gateway.Listen(o.Listen)
	if err != nil {
		return input.Errorf("--listen: %w", err)
	}
	defer func() { err = errors.Join(err, end(gw, mark)) }()
	host, err := o.host(gw)
	if err != nil {
		return err
	}
	numbers := newMetrics()
	gw.Observe(newObserver(log, numbers, o.Warn))
	gw.Page("/metrics", numbers.handler())
	access, running, err := c.open(gw, st, o, gateway.AccessOptions{Servers: c.reached(o, mark), Token: token})
	if err != nil {
		return err
	}
	numbers.of(access, running)
	var endpoints []Endpoint
	for _, name := range access.Names() {
		endpoints = append(endpoints, Endpoint{name, "http://" + host + access.Path(name), access.Token()})
	}
	if err := ready(endpoints); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// ServeStreams serves one endpoint to the client at the other ends of two streams, until in ends.
// It needs no token, because nobody else can reach it. What it keeps in the store that openStore
// opens is removed at the end.
func (c *Config) ServeStreams(ctx context.Context, endpoint string,
	openStore func(dir string) (Store, func() error, error), o Options, in, out *os.File) (err error) {
	var names []string
	for _, s := range c.servers {
		names = append(names, s.Name)
	}
	if !slices.Contains(names, endpoint) {
		if endpoint != AggregateName {
			return input.Errorf("--stdio: there is no MCP server %q in %s; expected %s, or %s",
				endpoint, c.file, strings.Join(names, ", "), AggregateName)
		}
		o.Aggregate = true
	}
	dir, err := os.MkdirTemp("", "evalrun-gateway-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	st, closeStore, err := openStore(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeStore()) }()
	log, endLog, err := openLog(o.RequestLog, o.Stderr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, endLog()) }()
	gw, mark := gateway.New(), st.ID()+"/gateway"
	defer func() { err = errors.Join(err, end(gw, mark)) }()
	gw.Observe(newObserver(log, newMetrics(), o.Warn))
	access, _, err := c.open(gw, st, o, gateway.AccessOptions{Servers: c.reached(o, mark)})
	if err != nil {
		return err
	}
	if err := access.ServeStdio(ctx, endpoint, in, out); err != nil && ctx.Err() == nil {
		return err
	}
	return nil
}

// end closes a gateway. It ends processes that its servers have left running, which bear the mark.
func end(gw *gateway.Gateway, mark string) error {
	err := gw.Close()
	_, left := sandbox.Sweep(mark)
	return errors.Join(err, left)
}

// open opens an access whose clients get tasks. running counts the tasks that have not ended.
func (c *Config) open(gw *gateway.Gateway, st Store, o Options,
	options gateway.AccessOptions) (access *gateway.Access, running func() int, err error) {
	o.Tasks.Store = st
	manager, err := mcptasks.New(o.Tasks, nil)
	if err != nil {
		return nil, nil, input.Errorf("%s: %w", c.file, err)
	}
	options.Tasks = manager
	if o.Aggregate {
		options.Combine = catalog.Combine(AggregateName)
	}
	if access, err = gw.Open(options); err != nil {
		return nil, nil, input.Errorf("%s: %w", c.file, err)
	}
	return access, manager.Running, nil
}

// host is the address at which clients on this machine reach the gateway. Other machines may reach
// it only if that was asked for.
func (o Options) host(gw *gateway.Gateway) (string, error) {
	addr, ok := gw.Addr().(*net.TCPAddr)
	if !ok || addr.IP.IsLoopback() {
		return gw.Addr().String(), nil
	}
	if !o.AllowRemote {
		return "", input.Errorf("--listen %s: other machines can reach this address, to which clients would send the token unencrypted; listen on a loopback address such as 127.0.0.1:0, or add --allow-remote",
			o.Listen)
	}
	o.Warn(fmt.Sprintf("--allow-remote: clients send the token to %s unencrypted", addr))
	if addr.IP.IsUnspecified() {
		return net.JoinHostPort("127.0.0.1", strconv.Itoa(addr.Port)), nil
	}
	return addr.String(), nil
}
