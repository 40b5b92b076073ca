package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
)

// sseLink is the HTTP+SSE transport of 2024-11-05. One stream has everything that the server says.
// Each message to it is a POST to an address that the stream begins with.
type sseLink struct {
	c *Client
	clientHTTP
	endpoint string
	cancel   context.CancelFunc // of the stream
}

// openSSE opens the stream and waits for the address.
func openSSE(ctx context.Context, c *Client, t Target) error {
	// The context is not bound to c.life, because close ends the stream and with it the session.
	bound, cancel := context.WithCancel(context.WithoutCancel(ctx))
	l := &sseLink{c: c, clientHTTP: newClientHTTP(t), cancel: cancel}
	c.link, c.detach = l, context.AfterFunc(ctx, cancel)
	body, base, err := l.open(bound)
	if err != nil {
		if ctx.Err() != nil {
			return clientContextError(ctx)
		}
		return err
	}
	events := newClientEvents(c.o.MaxMessage)
	events.from(body) // these wait for the server as long as bound lasts
	for l.endpoint == "" {
		e, err := events.next()
		if err == nil && e.name == "endpoint" {
			l.endpoint, err = resolveEndpoint(base, string(e.data))
		}
		if err != nil {
			body.Close()
			if ctx.Err() != nil {
				return clientContextError(ctx)
			}
			return clientGone("no endpoint came: %w", err)
		}
	}
	if !c.life.spawn(func() { l.read(events, body) }) {
		body.Close()
	}
	return nil
}

func (l *sseLink) open(ctx context.Context) (io.ReadCloser, *url.URL, error) {
	req, err := l.request(ctx, http.MethodGet, l.url, nil)
	if err != nil {
		return nil, nil, err
	}
	req.Header.Set("Accept", clientSSE)
	resp, err := l.do(req)
	if err != nil {
		return nil, nil, err
	}
	kind := mediaType(resp.Header.Get("Content-Type"))
	if resp.StatusCode == http.StatusOK && kind == clientSSE {
		return resp.Body, resp.Request.URL, nil
	}
	defer resp.Body.Close()
	text, _ := readClientBody(resp.Body, resp.ContentLength, l.c.o.MaxMessage) // the part that is there
	if resp.StatusCode == http.StatusOK {
		return nil, nil, fmt.Errorf("%w: content type %q instead of a stream: %s",
			errClientMalformed, kind, clientExcerpt(text))
	}
	return nil, nil, newStatusError(resp, text)
}

// resolveEndpoint returns the address for messages. It must be at the server of the stream, or
// another server would get what is meant for this one.
func resolveEndpoint(base *url.URL, endpoint string) (string, error) {
	u, err := base.Parse(endpoint)
	if err != nil {
		return "", fmt.Errorf("the endpoint is no URL: %w", err)
	}
	if u.Scheme != base.Scheme || u.Host != base.Host {
		return "", fmt.Errorf("the endpoint %s://%s is not on the server %s://%s", u.Scheme, u.Host, base.Scheme, base.Host)
	}
	return u.String(), nil
}

// read handles the stream until it ends. The connection ends with it.
func (l *sseLink) read(events *clientEvents, body io.ReadCloser) {
	defer body.Close()
	for {
		e, err := events.next()
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			_ = l.c.end(clientGone("the stream has ended: %w", err), false)
			return
		}
		if e.name == "" || e.name == "message" {
			l.c.receiver.receive(nil, e.data)
		}
	}
}

func (l *sseLink) call(ctx context.Context, p *clientCall) (json.RawMessage, error) {
	err := l.send(ctx, p.message())
	if err != nil && ctx.Err() == nil && l.c.calls.take(p) {
		return nil, err
	}
	return l.c.await(ctx, p)
}

func (l *sseLink) send(ctx context.Context, m message) error {
	bound, cancel := l.c.sending(ctx, m)
	defer cancel()
	req, err := l.request(bound, http.MethodPost, l.endpoint, m.Encode())
	if err != nil {
		return err
	}
	resp, err := l.do(req)
	if err != nil {
		if ctx.Err() != nil {
			return clientContextError(ctx)
		}
		return err
	}
	defer resp.Body.Close()
	body, _ := readClientBody(resp.Body, resp.ContentLength, clientDrainBytes) // there should be nothing
	if resp.StatusCode/100 != 2 {
		return newStatusError(resp, body)
	}
	return nil
}

func (l *sseLink) close(bool) error {
	l.cancel()
	l.closeIdle()
	return nil
}
