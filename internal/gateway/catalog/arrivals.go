package catalog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/evalrun/evalrun/internal/gateway"
	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
)

// defaultConnecting is how long a server may take to connect before a client of all servers is
// answered without it.
const defaultConnecting = 3 * time.Second

// arrival is a connection to a server that is being made. It goes on when nobody waits for it any
// more.
type arrival struct {
	begun    time.Time
	done     chan struct{} // closed when upstream and err are set
	upstream *gateway.Upstream
	err      error
	// missed says that a client was answered without the server. The mu of arrivals guards it.
	missed bool
}

// arrivalOf identifies whose connection it is: that of a legacy session, or of modern clients with
// the same capabilities.
type arrivalOf struct {
	endpoint     *gateway.Endpoint
	session      *aggregateSession
	capabilities string
}

// arrivals are the connections that are being made.
type arrivals struct {
	mu      sync.Mutex
	running map[arrivalOf]*arrival
}

// arrive begins to connect a request's client to a server, unless it is connected or somebody has
// begun before.
func (a *aggregate) arrive(e *gateway.Endpoint, r *mcp.Request) *arrival {
	v := &arrival{begun: time.Now(), done: make(chan struct{})}
	of := arrivalOf{endpoint: e}
	life, there := e.Context(), (*gateway.Upstream)(nil)
	if r.Era == mcp.Modern {
		of.capabilities = string(r.Meta().Get(mcp.MetaClientCapabilities))
		there = e.Upstreams().Connected(r)
	} else if of.session, _ = r.Session.Value().(*aggregateSession); of.session == nil {
		v.err = gateway.ErrClosed
	} else if life, there = of.session.ctx, of.session.upstreams[e]; !there.IsConnected() {
		there = nil
	}
	if v.upstream = there; there != nil || v.err != nil {
		close(v.done)
		return v
	}
	a.arrivals.mu.Lock()
	defer a.arrivals.mu.Unlock()
	if running := a.arrivals.running[of]; running != nil {
		return running
	}
	a.arrivals.running[of] = v
	e.Go(func() {
		v.upstream, v.err = a.connect(life, e, r)
		a.arrivals.mu.Lock()
		delete(a.arrivals.running, of)
		close(v.done)
		missed := v.missed
		a.arrivals.mu.Unlock()
		if missed && v.err == nil && of.session != nil {
			announce(v.upstream)
		}
	})
	return v
}

// await waits for an arrival. One that takes too long is left out once another server is there.
// While no other is, await goes on waiting, since there would be nothing to answer.
func (a *aggregate) await(ctx context.Context, v *arrival, another <-chan struct{}) (*gateway.Upstream, error) {
	late := time.NewTimer(time.Until(v.begun.Add(a.connecting)))
	defer late.Stop()
	select {
	case <-v.done:
		return v.upstream, v.err
	case <-ctx.Done():
	case <-late.C:
		select {
		case <-v.done:
			return v.upstream, v.err
		case <-ctx.Done():
		case <-another:
		}
	}
	a.arrivals.mu.Lock()
	defer a.arrivals.mu.Unlock()
	select {
	case <-v.done:
		return v.upstream, v.err
	default:
	}
	v.missed = true
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return nil, fmt.Errorf("it has not connected within %v", a.connecting)
}

// wasMissed reports whether a client was answered without the server.
func (a *aggregate) wasMissed(v *arrival) bool {
	a.arrivals.mu.Lock()
	defer a.arrivals.mu.Unlock()
	return v.missed
}

// each calls f at the same time for the upstream of each server that can be reached. It returns an
// error if no server can be reached.
func (a *aggregate) each(ctx context.Context, r *mcp.Request, f func(i int, l *gateway.Upstream)) error {
	errs := make([]error, len(a.endpoints))
	var all sync.WaitGroup
	var once sync.Once
	another := make(chan struct{})
	for i, e := range a.endpoints {
		all.Go(func() {
			l, err := a.await(ctx, a.arrive(e, r), another)
			if err != nil {
				errs[i] = e.Unreachable(err)
				return
			}
			once.Do(func() { close(another) })
			f(i, l)
		})
	}
	all.Wait()
	if !slices.Contains(errs, nil) {
		return mcp.Errorf(mcp.CodeInternal, "%v", errors.Join(errs...))
	}
	return nil
}

// mayCome adds to the capabilities of all servers those that a missing server may have, because
// clients look only for what they are told of.
func mayCome(capabilities jsonobj.Object) jsonobj.Object {
	for _, kind := range []string{"tools", "prompts", "resources"} {
		capabilities = capabilities.Set(kind,
			slices.Clone(capabilities.Object(kind)).Set("listChanged", []byte("true")).JSON())
	}
	return capabilities
}

// announce tells a legacy session that every list of the server has changed, because it was
// answered without them.
func announce(l *gateway.Upstream) {
	for method, wish := range gateway.ListChanges {
		if gateway.ServerCapabilities(l.Client()).Has(strings.TrimSuffix(wish, "ListChanged")) {
			_ = l.Session().Notify(method, nil) // a session that has ended does not want to know
		}
	}
}
