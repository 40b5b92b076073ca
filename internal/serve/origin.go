package serve

import (
	"net"
	"net/netip"
	"net/url"
	"strings"
)

// hosts are the names under which the server may be called. A page whose name was made to resolve
// to this server (DNS rebinding) has another one. Addresses are allowed: no name resolves to them.
type hosts struct{ public string }

func newHosts(public *url.URL) *hosts {
	h := &hosts{}
	if public != nil {
		h.public = strings.ToLower(public.Hostname())
	}
	return h
}

func (h *hosts) allow(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.ToLower(strings.Trim(host, "[]")), ".")
	if host == "localhost" || host != "" && host == h.public {
		return true
	}
	_, err := netip.ParseAddr(host)
	return err == nil
}
