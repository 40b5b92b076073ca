package a2a

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/retry"
	"github.com/evalrun/evalrun/internal/wait/httpcall"
	"github.com/evalrun/evalrun/internal/wait/jsonvalue"
)

// The bindings and versions that are spoken.
const (
	bindingRPC  = "JSONRPC"
	bindingREST = "HTTP+JSON"
	version1    = "1.0"
	version03   = "0.3"
)

// cardPath is where the card of an agent is.
const cardPath = "/.well-known/agent-card.json"

// Interface is one of the ways in which an agent can be asked.
type Interface struct {
	// Endpoint is its address; without the host if that is the host of the card.
	Endpoint string `json:"endpoint"`
	Binding  string `json:"binding"`
	Version  string `json:"version"`
	Tenant   string `json:"tenant,omitempty"`
}

// Card is what evalrun needs of an agent's card.
type Card struct {
	Interface
	// JSON says that the agent takes JSON beside text.
	JSON bool
}

// stated is a card as an agent gives it, of either version.
type stated struct {
	SupportedInterfaces []struct {
		URL             string `json:"url"`
		ProtocolBinding string `json:"protocolBinding"`
		ProtocolVersion string `json:"protocolVersion"`
		Tenant          string `json:"tenant"`
	} `json:"supportedInterfaces"`
	DefaultInputModes []string `json:"defaultInputModes"`

	URL                  string `json:"url"`
	PreferredTransport   string `json:"preferredTransport"`
	ProtocolVersion      string `json:"protocolVersion"`
	AdditionalInterfaces []struct {
		URL       string `json:"url"`
		Transport string `json:"transport"`
	} `json:"additionalInterfaces"`
}

// Card asks for the agent's card and chooses the interface by which it is asked.
func (p Peer) Card(ctx context.Context) (Card, error) {
	base, err := p.base()
	if err != nil {
		return Card{}, err
	}
	place := *base
	if !strings.HasSuffix(place.Path, ".json") {
		place = *base.JoinPath(cardPath)
		place.RawQuery = base.RawQuery
	}
	a, err := p.Do(ctx, httpcall.Call{Request: httpcall.Request{Method: http.MethodGet, URL: p.URL, Headers: p.Headers},
		LiteralURL: place.String()})
	var f *fault.Fault
	switch {
	case errors.As(err, &f):
		return Card{}, f
	case err != nil:
		return Card{}, &httpcall.Error{Err: fmt.Errorf("the agent's card: %w", err), Category: fault.Start, Temporary: true}
	case a.Status == http.StatusNotFound:
		return Card{}, fault.Newf(fault.Start, "%s has no agent card at %s (404 Not Found); is this the address of an A2A agent?",
			p.URL, place.Path)
	case !a.OK():
		return Card{}, &httpcall.Error{Err: fmt.Errorf("the agent's card: %w", a.Err()), Category: fault.Start,
			Temporary: retry.Temporary(a.Status), After: a.RetryAfter}
	}
	var s stated
	if err := json.Unmarshal(a.Body, &s); err != nil {
		return Card{}, fault.Newf(fault.Protocol, "what %s has at %s is no agent card: it begins %q", p.URL, place.Path,
			jsonvalue.Excerpt(a.Body))
	}
	return s.choose(base, len(p.Headers) > 0)
}

// choose takes the newest version over JSON-RPC, else that over HTTP with JSON.
func (s stated) choose(base *url.URL, secret bool) (Card, error) {
	card := Card{JSON: slices.ContainsFunc(s.DefaultInputModes, func(mode string) bool {
		return strings.Contains(mode, "json") || mode == "*/*"
	})}
	all, others := s.interfaces()
	if len(all) == 0 {
		if len(others) == 0 {
			return card, fault.New(fault.Protocol, "the agent's card names no address of an interface")
		}
		return card, fault.Newf(fault.Protocol, "the agent's card offers %s; evalrun speaks A2A %s over %s and %s, and %s over %s",
			strings.Join(others, ", "), version1, bindingRPC, bindingREST, version03, bindingRPC)
	}
	card.Interface = slices.MinFunc(all, func(a, b Interface) int { return a.rank() - b.rank() })
	to, err := base.Parse(card.Endpoint)
	switch {
	case err != nil || to.Host == "" || to.Scheme != "http" && to.Scheme != "https":
		return card, fault.New(fault.Protocol, "the agent's card names an address that is no URL of HTTP")
	case to.Scheme == base.Scheme && to.Host == base.Host:
		card.Endpoint = to.RequestURI()
	case secret:
		return card, fault.Newf(fault.Protocol,
			"the agent's card names %s://%s, another host than that of its url, and the agent's headers are not for that; "+
				"let the card name the same host, or take url from there", to.Scheme, to.Host)
	default:
		card.Endpoint = to.String()
	}
	return card, nil
}

// interfaces returns those that evalrun can speak, and the names of the others.
func (s stated) interfaces() (all []Interface, others []string) {
	add := func(address, binding, version, tenant string) {
		i := Interface{address, strings.ToUpper(binding), version, tenant}
		switch {
		case address == "":
			return
		case strings.HasPrefix(version, "1."):
			i.Version = version1
		case strings.HasPrefix(version, "0.3"), strings.HasPrefix(version, "0.2"):
			i.Version = version03
		}
		if i.rank() > 2 {
			others = append(others, strings.TrimSpace(binding+" "+version))
			return
		}
		all = append(all, i)
	}
	for _, one := range s.SupportedInterfaces {
		add(one.URL, one.ProtocolBinding, one.ProtocolVersion, one.Tenant)
	}
	if len(s.SupportedInterfaces) > 0 {
		return all, others
	}
	version := s.ProtocolVersion
	if version == "" {
		version = version03
	}
	transport := s.PreferredTransport
	if transport == "" {
		transport = bindingRPC
	}
	add(s.URL, transport, version, "")
	for _, one := range s.AdditionalInterfaces {
		add(one.URL, one.Transport, version, "")
	}
	return all, others
}

// rank orders the interfaces that evalrun can speak: 0 to 2.
func (i Interface) rank() int {
	switch {
	case i.Binding == bindingRPC && i.Version == version1:
		return 0
	case i.Binding == bindingREST && i.Version == version1:
		return 1
	case i.Binding == bindingRPC && i.Version == version03:
		return 2
	}
	return 3
}
