package catalog

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/evalrun/evalrun/internal/gateway"
)

// maxName is the greatest length of the name of a tool or prompt. Some models take no longer ones.
const maxName = 64

// origin is a tool or prompt of a server.
type origin struct {
	endpoint *gateway.Endpoint
	name     string
}

// names gives the tools and prompts of several servers names: SERVER_NAME of [a-z0-9_-], at most 64
// characters. A name ends with a digest of the server and its own name if it had to be cut, if
// another server could have given it, or if its server would give it twice. So the owner of a name
// does not depend on which servers can be reached.
type names struct {
	// prefixes are the beginnings of the names of each server.
	prefixes []string

	mu     sync.Mutex
	byName map[string]origin
}

func newNames(endpoints []*gateway.Endpoint) *names {
	c := &names{byName: map[string]origin{}}
	for _, e := range endpoints {
		prefix, _ := canonical(e.Server().Name, "")
		c.prefixes = append(c.prefixes, prefix)
	}
	return c
}

// isAmbiguous reports whether more than one server could give a name, with a digest or without.
func (c *names) isAmbiguous(name string) bool {
	servers := 0
	for _, prefix := range c.prefixes {
		if strings.HasPrefix(name, prefix) {
			servers++
		}
	}
	return servers > 1 || likeDigested.MatchString(name)
}

// likeDigested matches names that look like ones with a digest.
var likeDigested = regexp.MustCompile("_[0-9a-f]{8}$")

// canonical returns the name of something, as long as nothing else has it. cut says that it did not
// fit.
func canonical(server, name string) (out string, cut bool) {
	out = strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', '0' <= r && r <= '9', r == '_', r == '-':
			return r
		}
		return '_'
	}, strings.ToLower(server+"_"+name))
	return out, len(out) > maxName
}

// digested returns a canonical name that nothing else can have.
func digested(out, server, name string) string {
	sum := sha256.Sum256([]byte(server + "\x00" + name))
	suffix := "_" + hex.EncodeToString(sum[:4])
	return out[:min(len(out), maxName-len(suffix))] + suffix
}

// name gives each item of a list its name, and remembers the names.
func (c *names) name(all []origin) []string {
	count := map[string]int{}
	for _, o := range all {
		name, _ := canonical(o.endpoint.Server().Name, o.name)
		count[name]++
	}
	names := make([]string, len(all))
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, o := range all {
		name, cut := canonical(o.endpoint.Server().Name, o.name)
		if cut || count[name] > 1 || c.isAmbiguous(name) {
			name = digested(name, o.endpoint.Server().Name, o.name)
		}
		names[i] = name
		c.byName[name] = o
	}
	return names
}

// resolve finds the tool or prompt with a name, in any case.
func (c *names) resolve(name string) (origin, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	o, ok := c.byName[strings.ToLower(name)]
	return o, ok
}

// routes remembers which server has a resource.
type routes struct {
	mu    sync.Mutex
	byURI map[string]*gateway.Endpoint
}

// note records that a server has a resource, unless an earlier server has it too.
func (r *routes) note(uri string, e *gateway.Endpoint, order []*gateway.Endpoint) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if known := r.byURI[uri]; known == nil || slices.Index(order, e) < slices.Index(order, known) {
		r.byURI[uri] = e
	}
}

// first is the order in which the servers are asked for a resource.
func (r *routes) first(uri string, order []*gateway.Endpoint) []*gateway.Endpoint {
	r.mu.Lock()
	defer r.mu.Unlock()
	known := r.byURI[uri]
	if known == nil {
		return order
	}
	return append([]*gateway.Endpoint{known},
		slices.DeleteFunc(slices.Clone(order), func(e *gateway.Endpoint) bool { return e == known })...)
}
