package acpagent

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/gateway"
	"github.com/evalrun/evalrun/internal/modelproxy"
	"github.com/evalrun/evalrun/internal/record"
)

// offers compares the tools that an agent offers its model with the tools that the task's servers
// list. Some agents list the tools of their servers and keep them from their model. It needs the
// gateway, which knows the lists, and the model proxy, which knows the requests.
type offers struct {
	// form is the pattern by which the agent names a server's tool; empty if it is not known.
	form    string
	servers *servers

	mu sync.Mutex
	// requests counts the requests that were read. unread is set if one could not be read.
	requests int
	unread   bool
	// search is a tool by which the model finds other tools; empty if there is none.
	search string
	// offered holds the tools that were offered, by server.
	offered map[string]map[string]bool
}

func newOffers(form string, servers *servers) *offers {
	return &offers{form: form, servers: servers, offered: map[string]map[string]bool{}}
}

// add takes in the offer of a request. It reports whether there is more to learn.
func (o *offers) add(offer modelproxy.Offer) (more bool) {
	if !o.servers.behindGateway() {
		return false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.requests++
	o.unread = o.unread || offer.Unread
	for _, t := range offer.Tools {
		if searchesTools(t.Name) {
			o.search = t.Name
		}
	}
	text := plain(offer.Text)
	for _, e := range o.servers.access.Endpoints() {
		server := e.Server().Name
		if o.offered[server] == nil {
			o.offered[server] = map[string]bool{}
		}
		for name, tool := range e.Tools().Shown() {
			if !o.offered[server][name] {
				o.offered[server][name] = o.offers(offer, text, server, name, tool)
			}
			more = more || !o.offered[server][name]
		}
	}
	return more
}

// offers reports whether a request offers a tool of a server: under a name that the agent may have
// derived, with the tool's description, or in the agent's text about its tools. text is the plain
// text of the offer.
func (o *offers) offers(offer modelproxy.Offer, text, server, name string, tool gateway.Tool) bool {
	full := ""
	if o.form != "" {
		full = plain(strings.NewReplacer("{server}", server, "{tool}", name).Replace(o.form))
	}
	for _, t := range offer.Tools {
		if o.names(plain(t.Name), full, plain(server), plain(name)) || describes(t.Description, tool.Description) {
			return true
		}
	}
	// Some agents describe the tools in words, and have one tool that calls them all.
	return full != "" && strings.Contains(text, full) || isIdentifier(name) && hasWord(offer.Text, name)
}

// The longest name that every provider takes has 64 bytes. Agents shorten longer names, each in its
// own way, but keep the beginning.
const (
	maxToolName = 60
	keptOfName  = 24
)

// names reports whether an offered name is the name of a server's tool. Like the probe it compares
// the ends of names. If the form is known, the name must include the server, since the agent may
// have tools of its own with such names.
func (o *offers) names(offered, full, server, tool string) bool {
	switch {
	case full == "":
		return strings.HasSuffix(offered, tool)
	case offered == full:
		return true
	case len(full) > maxToolName && len(offered) > keptOfName && strings.HasPrefix(full, offered[:keptOfName]):
		return true
	}
	return strings.HasSuffix(offered, tool) && strings.Contains(strings.TrimSuffix(offered, tool), server)
}

// minDescription is how long a description must be to tell one tool from another. maxDescription is
// how much of it every agent keeps.
const (
	minDescription = 16
	maxDescription = 200
)

// describes reports whether an offered tool has the description of a server's.
func describes(offered, listed string) bool {
	listed = strings.TrimSpace(listed)
	return len(listed) >= minDescription && strings.Contains(offered, listed[:min(len(listed), maxDescription)])
}

var noName = regexp.MustCompile(`[^a-z0-9]+`)

// plain returns a name as agents and providers may have changed it: in lower case, with one _ for
// everything that is not a letter or digit.
func plain(name string) string { return noName.ReplaceAllString(strings.ToLower(name), "_") }

// searchesTools reports whether a tool finds or calls other tools, as claude's ToolSearch, qwen's
// tool_search and OpenAI's tool_search do.
func searchesTools(name string) bool {
	name = strings.ReplaceAll(plain(name), "_", "")
	return slices.ContainsFunc([]string{"toolsearch", "searchtool", "findtool", "loadtool",
		"discovertool", "selecttool", "mcptool",
		"calltool"}, func(word string) bool {
		return strings.Contains(name, word)
	})
}

var identifier = regexp.MustCompile(`[a-z][A-Z]|[-_0-9]`)

// isIdentifier reports whether a name cannot be an ordinary word.
func isIdentifier(name string) bool { return identifier.MatchString(name) }

// hasWord reports whether a text contains a name that is not part of a longer one.
func hasWord(text, name string) bool {
	for {
		before, after, found := strings.Cut(text, name)
		if !found {
			return false
		}
		if !endsInName(before) && !startsWithName(after) {
			return true
		}
		text = after
	}
}

func endsInName(s string) bool     { return s != "" && isNameByte(s[len(s)-1]) }
func startsWithName(s string) bool { return s != "" && isNameByte(s[0]) }
func isNameByte(c byte) bool {
	return c == '_' || c == '-' || c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z'
}

// maxNamed is how many tools a message names.
const maxNamed = 5

func list(names []string) string {
	if len(names) > maxNamed {
		names = append(slices.Clone(names[:maxNamed]), "…")
	}
	return strings.Join(names, ", ")
}

// judge sets the verdicts of the servers. It is called when no further request comes. known are the
// servers whose tools were offered in earlier segments; judge adds to them. It returns a fault if
// the agent's model had no tool of any server, since a score would be that of an agent that could
// do nothing.
func (o *offers) judge(info *record.Info, known []string) ([]string, *fault.Fault) {
	if !o.servers.behindGateway() {
		return known, nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	var first *fault.Fault
	others := false
	for i := range info.MCPServers {
		v := &info.MCPServers[i]
		all := slices.Sorted(maps.Keys(o.servers.access.Endpoint(v.Name).Tools().Shown()))
		missing := slices.DeleteFunc(slices.Clone(all), func(tool string) bool { return o.offered[v.Name][tool] })
		switch {
		case len(all) == 0:
			continue
		case len(missing) < len(all), v.Calls > 0: // the model must have known about those tools
			known = append(known, v.Name)
		}
		switch {
		case slices.Contains(known, v.Name):
			others = true
			if len(missing) < len(all) && o.search == "" && !o.unread {
				v.NotOffered = missing
			}
		case o.requests == 0 || o.unread:
			others = true // it is not known
		case o.search != "":
			others = true
			v.Verdict = record.VerdictDeferred
			v.Reason = fmt.Sprintf(
				"no request to the agent's model offered its tools (%s), but one by which a model finds tools (%s)",
				list(all), o.search)
		default:
			v.Verdict = record.VerdictHidden
			v.Reason = fmt.Sprintf("the agent has its tools (%s), and none of the %d requests to its model offered one",
				list(all), o.requests)
			if first == nil {
				first = fault.Newf(fault.MCP, "MCP server %q: %s", v.Name, v.Reason)
			}
		}
	}
	slices.Sort(known)
	if others {
		first = nil
	}
	return slices.Compact(known), first
}
