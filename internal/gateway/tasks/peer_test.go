package tasks

import (
	"errors"
	"testing"

	"github.com/evalrun/evalrun/internal/gateway"
	"github.com/evalrun/evalrun/internal/gateway/catalog"
	"github.com/evalrun/evalrun/internal/gateway/gatewaytest"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	taskserver "github.com/evalrun/evalrun/fixtures/mcp/tasks/server"
	"github.com/evalrun/evalrun/internal/mcp"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/store/sqlite"
)

// taskGateway is a gateway whose clients get tasks, with a store that survives it.
type taskGateway struct {
	t       *testing.T
	dir     string
	options gateway.AccessOptions
	limits  Options
	all     string // the name of the endpoint for all servers; empty for none

	store   *sqlite.Store
	gateway *gateway.Gateway
	access  *gateway.Access
	tasks   *Manager
}

// plainBehind is a server without tasks behind a gateway, and a client of it.
func plainBehind(t *testing.T, o Options, client mcp.Era) (*gatewaytest.PlainServer, *taskGateway, *gatewaytest.TaskClient) {
	t.Helper()
	p, plain := gatewaytest.StartPlainServer(t)
	g := startTaskGateway(t, o, plain)
	return p, g, g.client(client, "plain")
}

// tasksBehind is the fixture's server of one era behind a gateway, and a client of it.
func tasksBehind(t *testing.T, server taskserver.Era, o Options, client mcp.Era) (*gatewaytest.TaskFixture, *taskGateway, *gatewaytest.TaskClient) {
	t.Helper()
	f, tasks := gatewaytest.StartTaskFixture(t, taskserver.Options{Era: server})
	g := startTaskGateway(t, o, tasks)
	return f, g, g.client(client, "tasks")
}

const taskToken = "a-token-that-survives"

func startTaskGateway(t *testing.T, o Options, servers ...gateway.Server) *taskGateway {
	t.Helper()
	g := &taskGateway{t: t, dir: t.TempDir(), options: gateway.AccessOptions{Servers: servers, Token: taskToken}, limits: o}
	g.start("127.0.0.1:0")
	t.Cleanup(g.stop)
	return g
}

func (g *taskGateway) start(address string) {
	g.t.Helper()
	var err error
	if g.store, err = sqlite.Open(g.dir, store.Options{Now: g.options.Now}); err != nil {
		g.t.Fatal(err)
	}
	g.limits.Store = g.store
	if g.tasks, err = New(g.limits, g.options.Now); err != nil {
		g.t.Fatal(err)
	}
	g.options.Tasks = g.tasks
	if g.all != "" {
		g.options.Combine = catalog.Combine(g.all)
	}
	if g.gateway, err = gateway.Listen(address); err != nil {
		g.t.Fatal(err)
	}
	if g.access, err = g.gateway.Open(g.options); err != nil {
		g.t.Fatal(err)
	}
}

func (g *taskGateway) stop() {
	if g.gateway == nil {
		return
	}
	if err := errors.Join(g.gateway.Close(), g.store.Close()); err != nil {
		g.t.Error(err)
	}
	g.gateway = nil
}

// restart is what clients see of a new process.
func (g *taskGateway) restart(between func()) {
	g.t.Helper()
	address := g.gateway.Addr().String()
	g.stop()
	if between != nil {
		between()
	}
	g.start(address)
}

// active is how many tasks the gateway looks after.
func (g *taskGateway) active() int {
	x := g.tasks.index
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.active) + len(x.byUpstream)
}

func (g *taskGateway) client(era mcp.Era, server string) *gatewaytest.TaskClient {
	g.t.Helper()
	return gatewaytest.ConnectTaskClient(g.t, g.access, era, server)
}

func (g *taskGateway) clientWith(server string, o mcp.ClientOptions) *gatewaytest.TaskClient {
	g.t.Helper()
	return gatewaytest.ConnectTaskClientWith(g.t, g.access, server, o)
}

func (g *taskGateway) sdkClient(version, server string) *sdk.ClientSession {
	g.t.Helper()
	return gatewaytest.SdkClient(g.t, g.access, version, server)
}
