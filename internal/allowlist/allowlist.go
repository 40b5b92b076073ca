// Package allowlist is the way to the network of processes that may reach some hosts only: a proxy
// for HTTP and for tunnels (CONNECT), on a socket that is brought into their sandbox. They have no
// other network, and resolve no names: the proxy does.
//
// The package knows lists of hosts, and nothing of tasks and sandboxes.
package allowlist

import (
	"net/netip"
	"strings"
)

// List says which hosts may be reached.
type List struct {
	names    [][]string // the labels of each
	prefixes []netip.Prefix
}

// New makes a list of host names, in which a label may be "*", addresses, also in brackets, and
// ranges of addresses. A "*" at the beginning stands for one label or more, elsewhere for one.
func New(hosts []string) *List {
	l := &List{}
	for _, host := range hosts {
		host = strings.TrimSuffix(strings.ToLower(strings.TrimSpace(host)), ".")
		bare := strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
		if address, err := netip.ParseAddr(bare); err == nil {
			address = address.Unmap()
			l.prefixes = append(l.prefixes, netip.PrefixFrom(address, address.BitLen()))
		} else if prefix, err := netip.ParsePrefix(bare); err == nil {
			l.prefixes = append(l.prefixes, prefix.Masked())
		} else {
			l.names = append(l.names, strings.Split(host, "."))
		}
	}
	return l
}

// named reports whether a host name is on the list.
func (l *List) named(host string) bool {
	labels := strings.Split(strings.TrimSuffix(strings.ToLower(host), "."), ".")
	for _, name := range l.names {
		if matches(name, labels) {
			return true
		}
	}
	return false
}

func matches(name, labels []string) bool {
	if name[0] == "*" && len(labels) > len(name) {
		labels = labels[len(labels)-len(name):]
	}
	if len(name) != len(labels) {
		return false
	}
	for i, label := range name {
		if labels[i] == "" || label != "*" && label != labels[i] {
			return false
		}
	}
	return true
}

// listed reports whether an address is on the list.
func (l *List) listed(address netip.Addr) bool {
	for _, p := range l.prefixes {
		if p.Contains(address) {
			return true
		}
	}
	return false
}

// inward lists the addresses that do not lead to the public network, or lead elsewhere: those of
// IANA's special-purpose registries, and IPv6 addresses that stand for IPv4 addresses.
var inward = func() (out []netip.Prefix) {
	for _, p := range []string{
		"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24",
		"192.168.0.0/16", "198.18.0.0/15", "224.0.0.0/3",
		"::/96", "::ffff:0:0/96", "64:ff9b::/96", "64:ff9b:1::/48", "100::/64", "2001::/23", "2002::/16", "fc00::/7",
		"fe80::/9", "ff00::/8",
	} {
		out = append(out, netip.MustParsePrefix(p))
	}
	return out
}()

// public reports whether an address is one of the public network.
func public(address netip.Addr) bool {
	for _, p := range inward {
		if p.Contains(address) {
			return false
		}
	}
	return address.IsValid() && address.Zone() == ""
}
