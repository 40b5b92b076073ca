package postgres_test

import (
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
)

// proxy is between a client and a server. It can cut one connection after some messages of its
// client, so that the server gets the last of them and the client no answer to it.
type proxy struct {
	t        *testing.T
	server   string
	listener net.Listener
	done     sync.WaitGroup

	// messages counts what clients have sent.
	messages atomic.Int64

	mu sync.Mutex
	// left is how many messages of a client are passed on before its connection is cut; negative if
	// none is to be cut. Only what is sent in a transaction counts.
	left int
	open map[net.Conn]bool
}

// startProxy starts a proxy before the server of a URL, and returns the URL that leads through it.
func startProxy(t *testing.T, server string) (p *proxy, through string) {
	t.Helper()
	u, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p = &proxy{t: t, server: u.Host, listener: l, left: -1, open: map[net.Conn]bool{}}
	p.done.Go(p.accept)
	t.Cleanup(func() {
		_ = l.Close()
		p.mu.Lock()
		for c := range p.open {
			_ = c.Close()
		}
		p.mu.Unlock()
		p.done.Wait()
	})
	u.Host = l.Addr().String()
	return p, u.String()
}

func (p *proxy) cutAfter(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left = n
}

// wasCut reports whether a connection was cut since cutAfter.
func (p *proxy) wasCut() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	cut := p.left < 0
	p.left = -1
	return cut
}

// count counts a message, and reports whether it is the last before the cut.
func (p *proxy) count() (last bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.left < 0 {
		return false
	}
	p.left--
	if p.left == 0 {
		p.left = -1
		return true
	}
	return false
}

func (p *proxy) keep(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open[c] = true
}

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.server)
		if err != nil {
			_ = client.Close()
			continue
		}
		p.keep(client)
		p.keep(server)
		cut := make(chan struct{})
		p.done.Go(func() { // what the server says
			defer client.Close()
			defer server.Close()
			buf := make([]byte, 1<<16)
			for {
				n, err := server.Read(buf)
				if err != nil {
					return
				}
				select {
				case <-cut: // the server has done what it was told
					return
				default:
				}
				if _, err := client.Write(buf[:n]); err != nil {
					return
				}
			}
		})
		p.done.Go(func() { // what the client says
			defer server.Close()
			buf := make([]byte, 1<<16)
			for {
				n, err := client.Read(buf)
				if err != nil {
					return
				}
				p.messages.Add(1)
				last := p.count()
				if last {
					close(cut)
				}
				if _, err := server.Write(buf[:n]); err != nil || last {
					if last && err == nil {
						continue
					}
					return
				}
			}
		})
	}
}
