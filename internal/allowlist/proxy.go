package allowlist

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"strconv"
	"sync"
	"time"
)

// Options are the options of a proxy.
type Options struct {
	// Resolve returns the addresses of a host name; nil asks this machine's resolver.
	Resolve func(ctx context.Context, host string) ([]netip.Addr, error)
	// Refused is called for everything that is refused, with "host:port" and the reason. It may be
	// called concurrently.
	Refused func(target, reason string)
}

// Proxy forwards the requests that the list allows. It is an http.Handler for one server.
type Proxy struct {
	list    *List
	options Options
	server  *http.Server
	plain   *httputil.ReverseProxy

	mu      sync.Mutex
	tunnels map[net.Conn]bool // nil when the proxy is closed
	ended   sync.WaitGroup
}

// refusal says why a host may not be reached.
type refusal struct{ reason string }

func (r *refusal) Error() string { return r.reason }

// dialTimeout is how long a host may take to accept a connection.
const dialTimeout = 30 * time.Second

// Serve makes a proxy that accepts connections from a listener, until Close.
func Serve(l net.Listener, list *List, o Options) *Proxy {
	if o.Resolve == nil {
		o.Resolve = func(ctx context.Context, host string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		}
	}
	p := &Proxy{list: list, options: o, tunnels: map[net.Conn]bool{}}
	transport := &http.Transport{DialContext: func(ctx context.Context, _, target string) (net.Conn, error) {
		return p.dial(ctx, target)
	}, DisableCompression: true, IdleConnTimeout: time.Minute}
	p.plain = &httputil.ReverseProxy{
		// The request must not reach another host of the same server.
		Rewrite:       func(r *httputil.ProxyRequest) { r.Out.Host = r.Out.URL.Host },
		Transport:     transport,
		FlushInterval: -1,
		ErrorHandler:  func(w http.ResponseWriter, r *http.Request, err error) { p.fail(w, r.URL.Host, err) },
	}
	p.server = &http.Server{Handler: p, ReadHeaderTimeout: time.Minute}
	p.server.RegisterOnShutdown(transport.CloseIdleConnections)
	p.ended.Go(func() { _ = p.server.Serve(l) }) // ends with Close
	return p
}

// Close ends the proxy with all its connections.
func (p *Proxy) Close() error {
	err := p.server.Close()
	p.mu.Lock()
	for c := range p.tunnels {
		_ = c.Close()
	}
	p.tunnels = nil
	p.mu.Unlock()
	p.ended.Wait()
	return err
}

// ServeHTTP implements http.Handler.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Method == http.MethodConnect:
		p.tunnel(w, r)
	case r.URL.Scheme == "http" && r.URL.Host != "":
		p.plain.ServeHTTP(w, r)
	default:
		http.Error(w, "evalrun: expected CONNECT, or the http URL of a host", http.StatusBadRequest)
	}
}

// fail answers a request that could not be forwarded.
func (p *Proxy) fail(w http.ResponseWriter, target string, err error) {
	var refused *refusal
	if errors.As(err, &refused) {
		if p.options.Refused != nil {
			p.options.Refused(target, refused.reason)
		}
		http.Error(w, "evalrun: "+target+": "+refused.reason, http.StatusForbidden)
		return
	}
	http.Error(w, fmt.Sprintf("evalrun: %s: %v", target, err), http.StatusBadGateway)
}

// tunnel forwards all bytes in both directions.
func (p *Proxy) tunnel(w http.ResponseWriter, r *http.Request) {
	there, err := p.dial(r.Context(), r.Host)
	if err != nil {
		p.fail(w, r.Host, err)
		return
	}
	defer func() { _ = there.Close() }() // it may be closed already
	here, buffered, err := w.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	defer func() { _ = here.Close() }() // as above
	if !p.keep(here, there) {
		return
	}
	defer p.forget(here, there)
	if _, err := here.Write([]byte("HTTP/1.1 200 OK\r\n\r\n")); err != nil {
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(there, buffered) // an error is an end
		closeWrite(there)
	}()
	_, _ = io.Copy(here, there) // an error is an end
	closeWrite(here)
	<-done
}

func closeWrite(c net.Conn) {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite() // it may be closed already
	}
}

// keep registers a tunnel, so that Close ends it and waits for it. It reports whether the proxy is
// still open.
func (p *Proxy) keep(both ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.tunnels == nil {
		return false
	}
	p.ended.Add(1)
	for _, c := range both {
		p.tunnels[c] = true
	}
	return true
}

func (p *Proxy) forget(both ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range both {
		delete(p.tunnels, c)
	}
	p.ended.Done()
}

// dial connects to a host if it may be reached. A name is resolved once, and the connection goes to
// an address that was checked.
func (p *Proxy) dial(ctx context.Context, target string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	host, port, err := net.SplitHostPort(target)
	if err != nil {
		return nil, &refusal{"expected a host and a port"}
	}
	number, err := strconv.Atoi(port)
	if err != nil || number < 1 || number > 65535 {
		return nil, &refusal{"expected a port from 1 to 65535"}
	}
	if number < 1024 && number != 80 && number != 443 {
		return nil, &refusal{"of the ports below 1024 only 80 and 443 can be reached"}
	}
	addresses, err := p.addresses(ctx, host)
	if err != nil {
		return nil, err
	}
	var dialer net.Dialer
	for _, address := range addresses {
		var c net.Conn
		if c, err = dialer.DialContext(ctx, "tcp", netip.AddrPortFrom(address, uint16(number)).String()); err == nil {
			return c, nil
		}
	}
	return nil, err
}

// addresses returns the addresses of a host that may be reached; at least one, or an error.
func (p *Proxy) addresses(ctx context.Context, host string) (out []netip.Addr, err error) {
	if address, err := netip.ParseAddr(host); err == nil {
		if address = address.Unmap(); !p.list.listed(address) {
			return nil, &refusal{"the address is not among the allowed hosts"}
		}
		return []netip.Addr{address}, nil
	}
	if !p.list.named(host) {
		return nil, &refusal{"the host is not among the allowed hosts"}
	}
	found, err := p.options.Resolve(ctx, host)
	if err != nil {
		return nil, err
	}
	for _, address := range found {
		if address = address.Unmap(); public(address) || p.list.listed(address) {
			out = append(out, address)
		}
	}
	if out == nil {
		return nil, &refusal{"its name leads to an address that is not public, and not among the allowed hosts"}
	}
	return out, nil
}
