package allowlist

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"testing"
)

func TestListsOfHosts(t *testing.T) {
	t.Parallel()
	l := New([]string{"Example.com.", "*.pypi.org", "a.*.net", "10.1.2.3", "[fd00::1]", "192.168.7.0/24"})
	for host, want := range map[string]bool{
		"example.com": true, "EXAMPLE.COM.": true, "www.example.com": false, "notexample.com": false, "example.com.evil.org": false,
		"files.pypi.org": true, "a.b.pypi.org": true, "pypi.org": false, ".pypi.org": false, "xpypi.org": false,
		"a.b.net": true, "a.b.c.net": false, "": false, ".": false,
	} {
		if got := l.named(host); got != want {
			t.Errorf("%q: got %v", host, got)
		}
	}
	for address, want := range map[string]bool{"10.1.2.3": true, "10.1.2.4": false, "fd00::1": true, "192.168.7.255": true, "192.168.8.1": false} {
		if got := l.listed(netip.MustParseAddr(address)); got != want {
			t.Errorf("%s: got %v", address, got)
		}
	}
	if !New([]string{"*"}).named("a.b.c") {
		t.Error("* is every name")
	}
}

func TestAddressesThatLeadInward(t *testing.T) {
	t.Parallel()
	for _, a := range []string{"127.0.0.1", "0.0.0.0", "10.0.0.1", "172.31.255.255", "192.168.1.1", "169.254.169.254", "100.64.0.1", "224.0.0.1", "255.255.255.255", "::", "::1",
		"fe80::1", "fec0::1", "fd12::1", "ff02::1", "64:ff9b::a00:1", "2002:7f00:1::", "::ffff:127.0.0.1", "fe80::1%eth0"} {
		if public(netip.MustParseAddr(a)) {
			t.Errorf("%s is public", a)
		}
	}
	for _, a := range []string{"1.1.1.1", "93.184.216.34", "2606:4700::1111"} {
		if !public(netip.MustParseAddr(a)) {
			t.Errorf("%s is not public", a)
		}
	}
}

// world is a proxy before servers of this machine, which have names.
type world struct {
	t       *testing.T
	client  *http.Client
	names   map[string][]netip.Addr
	asked   map[string]int
	mu      sync.Mutex
	refused []string
	proxy   *url.URL
}

func newWorld(t *testing.T, hosts ...string) *world {
	w := &world{t: t, names: map[string][]netip.Addr{}, asked: map[string]int{}}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := Serve(l, New(hosts), Options{
		Resolve: func(_ context.Context, host string) ([]netip.Addr, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.asked[host]++
			if found, ok := w.names[host]; ok {
				return found, nil
			}
			return nil, errors.New("no such host")
		},
		Refused: func(target, reason string) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.refused = append(w.refused, target+": "+reason)
		},
	})
	t.Cleanup(func() { _ = p.Close() })
	w.proxy = &url.URL{Scheme: "http", Host: l.Addr().String()}
	w.client = &http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(w.proxy)}}
	return w
}

// serve starts a server of this machine, and gives it a name.
func (w *world) serve(name string, s *httptest.Server) (port string) {
	w.t.Cleanup(s.Close)
	host, port, err := net.SplitHostPort(s.Listener.Addr().String())
	if err != nil {
		w.t.Fatal(err)
	}
	w.names[name] = []netip.Addr{netip.MustParseAddr(host)}
	return port
}

func (w *world) get(url string) (status int, body string) {
	w.t.Helper()
	r, err := w.client.Get(url)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = r.Body.Close() }()
	data, _ := io.ReadAll(r.Body)
	return r.StatusCode, string(data)
}

func hello(w http.ResponseWriter, r *http.Request) { _, _ = fmt.Fprint(w, "hello from "+r.Host) }

// A host on the list is reached, over HTTP and through tunnels; the address of a local server has to
// be on the list, too.
func TestAllowedHostsAreReached(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "good.test", "127.0.0.1")
	port := w.serve("good.test", httptest.NewServer(http.HandlerFunc(hello)))
	if status, body := w.get("http://good.test:" + port + "/"); status != 200 || body != "hello from good.test:"+port {
		t.Errorf("%d %s", status, body)
	}
	secure := httptest.NewTLSServer(http.HandlerFunc(hello))
	port = w.serve("good.test", secure)
	transport := secure.Client().Transport.(*http.Transport).Clone()
	transport.Proxy, transport.TLSClientConfig.ServerName = http.ProxyURL(w.proxy), "example.com"
	w.client = &http.Client{Transport: transport}
	if status, body := w.get("https://good.test:" + port + "/"); status != 200 || body != "hello from good.test:"+port {
		t.Errorf("%d %s", status, body)
	}
	if w.asked["good.test"] != 2 || len(w.refused) > 0 {
		t.Errorf("%v %v", w.asked, w.refused)
	}
}

// What is not on the list is refused before its name is resolved, also where an allowed host leads
// there; so is a name that leads inward, and a port at which there is no web.
func TestEverythingElseIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "good.test", "inner.test", "*.wild.test", "127.0.0.1")
	evil := w.serve("evil.test", httptest.NewServer(http.HandlerFunc(hello)))
	good := w.serve("good.test", httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		http.Redirect(rw, r, "http://evil.test:"+evil+"/", http.StatusFound)
	})))
	w.names["inner.test"] = []netip.Addr{netip.MustParseAddr("169.254.169.254"), netip.MustParseAddr("::1")}
	for url, reason := range map[string]string{
		"http://evil.test:" + evil:         "the host is not among the allowed hosts",
		"http://good.test:" + good:         "evil.test:" + evil + ": the host is not among the allowed hosts", // a redirection
		"http://wild.test:" + evil:         "the host is not among the allowed hosts",
		"http://inner.test":                "its name leads to an address that is not public",
		"http://[::1]:" + evil:             "the address is not among the allowed hosts",
		"http://[::ffff:10.0.0.1]:" + evil: "the address is not among the allowed hosts",
		"http://good.test:25":              "only 80 and 443",
	} {
		if status, body := w.get(url); status != http.StatusForbidden || !strings.Contains(body, reason) {
			t.Errorf("%s: %d %s, want %q", url, status, body, reason)
		}
	}
	if w.asked["evil.test"] != 0 || len(w.refused) != 7 {
		t.Errorf("%v %v", w.asked, w.refused)
	}
	for _, target := range []string{"good.test:22", "evil.test:443", "inner.test:443", "10.0.0.1:443", "good.test"} {
		if got := w.connect(target); got != http.StatusForbidden && got != http.StatusBadRequest {
			t.Errorf("CONNECT %s: %d", target, got)
		}
	}
	if status, _ := w.get("http://" + w.proxy.Host + "/"); status != http.StatusForbidden { // 127.0.0.1 is allowed, but the proxy is no server
		if status != http.StatusBadRequest {
			t.Errorf("the proxy itself: %d", status)
		}
	}
}

// connect asks for a tunnel.
func (w *world) connect(target string) int {
	c, err := net.Dial("tcp", w.proxy.Host)
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_, _ = fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: x\r\n\r\n", target)
	status := 0
	_, _ = fmt.Fscanf(c, "HTTP/1.1 %d", &status)
	return status
}

// A name that leads somewhere else when it is asked for again (DNS rebinding) leads nowhere: the
// connection goes to the address that was looked at.
func TestANameIsResolvedOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "good.test", "127.0.0.1")
	port := w.serve("good.test", httptest.NewServer(http.HandlerFunc(hello)))
	w.names["good.test"] = append([]netip.Addr{netip.MustParseAddr("10.255.255.1")}, w.names["good.test"]...)
	if status, _ := w.get("http://good.test:" + port); status != 200 || w.asked["good.test"] != 1 {
		t.Errorf("%d, asked %v", status, w.asked)
	}
}
