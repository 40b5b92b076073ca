package rollout

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/allowlist"
	"github.com/evalrun/evalrun/internal/record"
	"github.com/evalrun/evalrun/internal/sandbox"
	"github.com/evalrun/evalrun/schemas"
	"github.com/evalrun/evalrun/tasks"
)

// proxyPort is the port of an allowlist's proxy on the loopback of a sandbox.
const proxyPort = 18436

// fileNetwork is the log of the connections that an agent was refused.
const fileNetwork = "network.jsonl"

// reach gives the processes of a sandbox a way to the hosts that they may reach. A nil reach leads
// nowhere, and needs no Close.
type reach struct {
	proxy *allowlist.Proxy
	// env holds the variables by which programs find the proxy.
	env []string

	mu      sync.Mutex
	refused map[refusedHost]int
	total   int
}

// refusedHost is a host and port with the reason for the refusal.
type refusedHost struct{ target, reason string }

// mostRefused is how many different refusals are remembered.
const mostRefused = 1000

// networkOf returns the network setting of a phase, or else that of the task.
func (s *sandboxSpec) networkOf(phase tasks.Network) tasks.Network {
	if phase.NetworkMode == "" && s.task != nil {
		return s.task.Config.Environment.Network
	}
	return phase
}

// openReach opens the way of processes to the hosts of their phase, if the phase has a list of
// hosts. The socket is in dir, whose path is short.
func (s *sandboxSpec) openReach(ctx context.Context, h *held, phase tasks.Network, cfg *sandbox.Config,
	dir string) (*reach, error) {
	network := s.networkOf(phase)
	if network.NetworkMode != tasks.NetworkAllowlist {
		return nil, nil
	}
	socket := filepath.Join(dir, "net.sock")
	l, err := (&net.ListenConfig{}).Listen(ctx, "unix", socket)
	if err != nil {
		return nil, err
	}
	r := &reach{refused: map[refusedHost]int{}}
	r.proxy = allowlist.Serve(l, allowlist.New(network.AllowedHosts), allowlist.Options{
		Refused: func(target, reason string) {
			if r.count(refusedHost{target, reason}) {
				h.host.Logger.Warn("a host was refused, which is not among the task's allowed_hosts",
					"rollout", h.claim.RolloutID, "host", h.run.Redact.String(target), "reason", reason)
			}
		}})
	cfg.Forwards = append(slices.Clone(cfg.Forwards), sandbox.Forward{Port: proxyPort, Socket: socket})
	direct := []string{"localhost", "127.0.0.1", "::1"}
	if s.compose != nil {
		direct = append(direct, s.compose.Names()...)
	}
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"} {
		address := fmt.Sprintf("http://127.0.0.1:%d", proxyPort)
		r.env = append(r.env, name+"="+address, strings.ToLower(name)+"="+address)
	}
	r.env = append(r.env, "NO_PROXY="+strings.Join(direct, ","), "no_proxy="+strings.Join(direct, ","))
	return r, nil
}

// count counts a refusal and reports whether it is the first of its kind.
func (r *reach) count(one refusedHost) (first bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.total++
	if first = r.refused[one] == 0 && len(r.refused) < mostRefused; first || r.refused[one] > 0 {
		r.refused[one]++
	}
	return first
}

// environ returns the variables by which programs find the proxy.
func (r *reach) environ() []string {
	if r == nil {
		return nil
	}
	return r.env
}

// Close ends the connections.
func (r *reach) Close() error {
	if r == nil {
		return nil
	}
	return r.proxy.Close()
}

// sorted returns the refusals in the order of their hosts. The reach must be closed.
func (r *reach) sorted() []refusedHost {
	if r == nil {
		return nil
	}
	return slices.SortedFunc(maps.Keys(r.refused), func(a, b refusedHost) int {
		return strings.Compare(a.target+a.reason, b.target+b.reason)
	})
}

// connections returns the refusals as they are reported; nil if there were none. The reach must be
// closed.
func (r *reach) connections() *schemas.RefusedConnections {
	if r == nil || r.total == 0 {
		return nil
	}
	all := &schemas.RefusedConnections{Total: r.total}
	for _, one := range r.sorted() {
		all.Hosts = append(all.Hosts, schemas.RefusedHost{Host: one.target, Reason: one.reason, Connections: r.refused[one]})
	}
	return all.Plus(&schemas.RefusedConnections{}) // Plus puts the most frequent first, and keeps only so many
}

// notes say which connections tests were refused.
func (r *reach) notes() (notes []string) {
	all := r.connections()
	if all == nil {
		return nil
	}
	for _, h := range all.Hosts {
		notes = append(notes, fmt.Sprintf("network: %s was refused %d times: %s", h.Host, h.Connections, h.Reason))
		all.Total -= h.Connections
	}
	if all.Total > 0 {
		notes = append(notes, fmt.Sprintf("network: other hosts were refused %d times", all.Total))
	}
	return notes
}

// because names the connections that tests were refused, for the message of their fault.
func (r *reach) because() string {
	if all := r.connections(); all != nil {
		return "; " + all.String()
	}
	return ""
}

// keep adds a log of the agent's refused connections to the files of its segment.
func (r *reach) keep(h *held, dir string, out *agent.Outcome) error {
	all := r.sorted()
	if all == nil {
		return nil
	}
	log := record.NewLines(filepath.Join(dir, fileNetwork), h.run.filter())
	for _, one := range all {
		err := log.Append(struct {
			Host    string `json:"host"`
			Reason  string `json:"reason"`
			Refused int    `json:"refused"`
		}{one.target, one.reason, r.refused[one]})
		if err != nil {
			return errors.Join(err, log.Close())
		}
	}
	out.Files = append(out.Files, fileNetwork)
	return log.Close()
}
