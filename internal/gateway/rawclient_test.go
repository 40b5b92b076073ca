package gateway_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/gateway"
	"github.com/evalrun/evalrun/internal/mcp"
)

// rawClient is a client of one era.
type rawClient struct {
	t   testing.TB
	era mcp.Era
	// capabilities are those that it declares.
	capabilities string
	// other gets what comes that is no answer; it returns what is to be sent back, if anything.
	other func(text []byte) string

	send    func(text string, answered func(text []byte)) error
	lastID  atomic.Int64
	url     string
	token   string
	session atomic.Value // string
}

// newClient makes a client of an endpoint over a transport: http, stdio, or bridge, which is stdio
// by way of HTTP. It has shaken hands.
func newClient(t testing.TB, a *gateway.Access, transport string, c *rawClient) *rawClient {
	t.Helper()
	c.t, c.token = t, a.Token()
	if transport != "stdio" {
		c.url = a.URL("raw")
	}
	c.session.Store("")
	if c.capabilities == "" {
		c.capabilities = "{}"
	}
	switch c.send = c.sendHTTP; transport {
	case "stdio":
		c.send = c.overLines(func(r io.Reader, w io.Writer) error { return a.ServeStdio(context.Background(), "raw", r, w) })
	case "bridge":
		c.send = c.overLines(func(r io.Reader, w io.Writer) error {
			return gateway.Bridge(context.Background(), c.url, c.token, r, w)
		})
	}
	if c.era == mcp.Modern {
		return c
	}
	m := c.call("initialize", `{"protocolVersion":"2025-11-25","capabilities":`+c.capabilities+`,"clientInfo":{"name":"raw","version":"1"}}`)
	if m.Error != nil {
		t.Fatalf("initialize: %s", m.Error)
	}
	c.notify("notifications/initialized", "{}")
	return c
}

// modernMeta are the members of _meta that a modern request must have.
func (c *rawClient) modernMeta() string {
	return `"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":` + c.capabilities +
		`,"io.modelcontextprotocol/clientInfo":{"name":"raw","version":"1"}`
}

// params makes params of members and of members of _meta, to which a modern client adds its own.
func (c *rawClient) params(members, meta string) string {
	if c.era == mcp.Modern {
		if meta != "" {
			meta += ","
		}
		meta += c.modernMeta()
	}
	switch {
	case meta == "":
		return "{" + members + "}"
	case members != "":
		members += ","
	}
	return "{" + members + `"_meta":{` + meta + "}}"
}

// begin sends a request; the answer comes on the channel.
func (c *rawClient) begin(method, params string) <-chan rawMessage {
	id := fmt.Sprintf(`"raw-%d"`, c.lastID.Add(1))
	answers := make(chan rawMessage, 1)
	err := c.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":%s}`, id, method, params), func(text []byte) {
		m := parseRaw(text)
		if string(m.ID) != id {
			c.t.Errorf("the answer to %s has the id %s", id, m.ID)
		}
		answers <- m
	})
	if err != nil {
		c.t.Errorf("%s: %v", method, err)
		close(answers)
	}
	return answers
}

// call sends a request and waits for its answer.
func (c *rawClient) call(method, params string) rawMessage {
	c.t.Helper()
	select {
	case m := <-c.begin(method, params):
		return m
	case <-time.After(patience):
		c.t.Fatalf("%s was not answered", method)
		return rawMessage{}
	}
}

func (c *rawClient) notify(method, params string) {
	c.t.Helper()
	if err := c.send(fmt.Sprintf(`{"jsonrpc":"2.0","method":%q,"params":%s}`, method, params), nil); err != nil {
		c.t.Errorf("%s: %v", method, err)
	}
}

// sendHTTP posts a message, and reads the answer on another goroutine if there must be one.
func (c *rawClient) sendHTTP(text string, answered func(text []byte)) error {
	m := parseRaw([]byte(text))
	req, err := http.NewRequestWithContext(c.t.Context(), http.MethodPost, c.url, strings.NewReader(text))
	if err != nil {
		return err
	}
	req.Header = http.Header{
		"Authorization": {"Bearer " + c.token}, "Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"},
	}
	if session := c.session.Load().(string); session != "" {
		req.Header.Set("Mcp-Session-Id", session)
	}
	if c.era == mcp.Modern {
		req.Header.Set("Mcp-Protocol-Version", "2026-07-28")
		req.Header.Set("Mcp-Method", m.Method)
		var named struct{ Name, URI string }
		if json.Unmarshal(m.Params, &named) == nil && named.Name+named.URI != "" {
			req.Header.Set("Mcp-Name", named.Name+named.URI)
		}
	}
	read := func() error {
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if session := resp.Header.Get("Mcp-Session-Id"); session != "" {
			c.session.Store(session)
		}
		if resp.Header.Get("Content-Type") != "text/event-stream" {
			body, err := io.ReadAll(resp.Body)
			if err == nil && answered != nil {
				answered(body)
			}
			return err
		}
		in := bufio.NewReaderSize(resp.Body, 64<<10)
		for {
			line, err := in.ReadBytes('\n')
			if err != nil {
				return nil //nolint:nilerr // whoever misses the answer says so
			}
			if data, ok := bytes.CutPrefix(bytes.TrimRight(line, "\n"), []byte("data: ")); ok && len(data) > 0 {
				c.received(data, answered)
			}
		}
	}
	if answered == nil {
		return read()
	}
	go func() {
		if err := read(); err != nil && c.t.Context().Err() == nil {
			c.t.Errorf("%s: %v", m.Method, err)
		}
	}()
	return nil
}

func (c *rawClient) received(data []byte, answered func([]byte)) {
	if m := parseRaw(data); m.Method == "" && answered != nil {
		answered(data)
	} else if c.other != nil {
		if reply := c.other(data); reply != "" {
			_ = c.send(reply, nil)
		}
	}
}

// overLines sends messages on lines to what serves them.
func (c *rawClient) overLines(serve func(r io.Reader, w io.Writer) error) func(text string, answered func([]byte)) error {
	ours, theirs := pipes()
	ended := make(chan error, 1)
	go func() { ended <- serve(theirs.Reader, theirs.Writer) }()
	var mu sync.Mutex
	waiting := map[string]func([]byte){}
	go func() {
		in := bufio.NewReaderSize(ours, 64<<10)
		for {
			line, err := in.ReadBytes('\n')
			if err != nil {
				return
			}
			line = bytes.TrimRight(line, "\n")
			m := parseRaw(line)
			mu.Lock()
			answered := waiting[string(m.ID)]
			if m.Method == "" {
				delete(waiting, string(m.ID))
			}
			mu.Unlock()
			c.received(line, answered)
		}
	}()
	c.t.Cleanup(func() {
		_ = ours.Close()
		select {
		case <-ended:
		case <-time.After(patience):
			c.t.Error("the client is still served")
		}
	})
	var writing sync.Mutex
	return func(text string, answered func([]byte)) error {
		if answered != nil {
			mu.Lock()
			waiting[string(parseRaw([]byte(text)).ID)] = answered
			mu.Unlock()
		}
		writing.Lock()
		defer writing.Unlock()
		_, err := io.WriteString(ours, text+"\n")
		return err
	}
}
