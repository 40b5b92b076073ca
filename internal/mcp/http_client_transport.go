package mcp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
)

// clientHTTP is the common part of both HTTP transports.
type clientHTTP struct {
	url    string
	header http.Header
	client *http.Client
	own    *http.Transport // nil if the client was given to us
}

func newClientHTTP(t Target) clientHTTP {
	h := clientHTTP{url: t.URL, header: t.Header}
	if t.HTTPClient != nil {
		client := *t.HTTPClient
		h.client = &client
	} else {
		h.own = &http.Transport{
			Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, MaxIdleConnsPerHost: 32,
			TLSHandshakeTimeout: 10 * time.Second,
			// Node closes idle connections after 5 s. A request that meets that fails, and nobody knows
			// whether it was processed.
			IdleConnTimeout: 4 * time.Second,
		}
		h.client = &http.Client{Transport: h.own}
	}
	callersCheck := h.client.CheckRedirect
	h.client.CheckRedirect = func(req *http.Request, via []*http.Request) error {
		// Headers and sessions are for this server only, and a POST that becomes a GET says nothing.
		if len(via) >= 10 || req.Method != via[0].Method || !sameServer(via[0].URL, req.URL) {
			return http.ErrUseLastResponse
		}
		if callersCheck != nil {
			return callersCheck(req, via)
		}
		return nil
	}
	return h
}

// sameServer reports whether a URL leads to the server of another: the same origin, or the same
// over TLS.
func sameServer(from, to *url.URL) bool {
	if from.Scheme == to.Scheme {
		return from.Host == to.Host
	}
	return from.Scheme == "http" && to.Scheme == "https" &&
		from.Port() == "" && to.Port() == "" && from.Hostname() == to.Hostname()
}

// request makes a request; body nil: none.
func (h *clientHTTP) request(ctx context.Context, method, target string, body []byte) (*http.Request, error) {
	var r io.Reader
	if body != nil {
		r = bytes.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, method, target, r)
	if err != nil {
		return nil, fmt.Errorf("the URL of the MCP server: %w", withoutURL(err))
	}
	for name, values := range h.header {
		req.Header[http.CanonicalHeaderKey(name)] = append([]string(nil), values...)
	}
	if host := h.header.Get("Host"); host != "" {
		req.Host = host
	}
	if body != nil {
		req.Header.Set("Content-Type", clientJSON)
		req.Header.Set("Accept", clientAccept)
	}
	return req, nil
}

// do sends a request. The error wraps ErrClosed.
func (h *clientHTTP) do(req *http.Request) (*http.Response, error) {
	resp, err := h.client.Do(req)
	if err != nil {
		return nil, clientGone("%w", withoutURL(err))
	}
	return resp, nil
}

// withoutURL removes the URL from an error, because it may hold a key.
func withoutURL(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

func (h *clientHTTP) closeIdle() {
	if h.own != nil {
		h.own.CloseIdleConnections()
	}
}
