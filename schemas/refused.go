package schemas

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// RefusedConnections are the connections that an agent was refused, because their target is not
// among its task's allowed_hosts.
type RefusedConnections struct {
	// Total is how many there were.
	Total int `json:"total"`
	// Hosts are their targets, the most frequent first, no more than MostRefusedHosts.
	Hosts []RefusedHost `json:"hosts"`
}

// RefusedHost is a host to which connections were refused.
type RefusedHost struct {
	// Host is as the agent named it, with the port if it gave one.
	Host        string `json:"host"`
	Reason      string `json:"reason"`
	Connections int    `json:"connections"`
}

// MostRefusedHosts is how many hosts are named.
const MostRefusedHosts = 20

// shownRefused is how many hosts are named in a sentence.
const shownRefused = 5

// Plus returns the sum of two counts of connections. Either may be nil.
func (r *RefusedConnections) Plus(more *RefusedConnections) *RefusedConnections {
	if r == nil || more == nil {
		return cmp.Or(r, more)
	}
	sum := &RefusedConnections{Total: r.Total + more.Total, Hosts: slices.Clone(r.Hosts)}
	for _, h := range more.Hosts {
		at := slices.IndexFunc(sum.Hosts, func(o RefusedHost) bool { return o.Host == h.Host && o.Reason == h.Reason })
		if at < 0 {
			sum.Hosts = append(sum.Hosts, h)
		} else {
			sum.Hosts[at].Connections += h.Connections
		}
	}
	slices.SortStableFunc(sum.Hosts, func(a, b RefusedHost) int { return b.Connections - a.Connections })
	sum.Hosts = sum.Hosts[:min(len(sum.Hosts), MostRefusedHosts)]
	return sum
}

// String returns the connections in one line; empty if there were none.
func (r *RefusedConnections) String() string {
	if r == nil || r.Total == 0 {
		return ""
	}
	parts, named := []string{}, 0
	for _, h := range r.Hosts[:min(len(r.Hosts), shownRefused)] {
		part := h.Host
		if h.Connections > 1 {
			part += fmt.Sprintf(" (%d times)", h.Connections)
		}
		parts, named = append(parts, part), named+h.Connections
	}
	out := "1 connection was refused: "
	if r.Total > 1 {
		out = fmt.Sprintf("%d connections were refused: ", r.Total)
	}
	out += strings.Join(parts, ", ")
	if r.Total > named {
		out += fmt.Sprintf(" and %d more", r.Total-named)
	}
	return out
}
