package httpagent

import (
	"maps"
	"net/textproto"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/internal/wait"
	"github.com/evalrun/evalrun/internal/wait/template"
)

// Name is the type of these agents.
const Name = "http"

// Type is the type of services that take a JSON document by POST and answer with one.
var Type = agent.Type{
	Name: Name, Parse: parse, Settings: func() any { return new(Settings) }, New: New,
	Texts: func(e agent.Entry) []string {
		s := agent.SettingsOf[Settings](e)
		return Texts(s.URL, s.Headers)
	},
}

// Settings are the settings that only the entries of these agents have. URL and Headers may hold
// ${VAR}.
type Settings struct {
	// URL is where the document of a segment is posted.
	URL string `json:"url,omitempty"`
	// Headers are sent with every request.
	Headers map[string]string `json:"headers,omitempty"`
	// Interval is how often the answer of a service that has answered 202 is asked for, at first.
	Interval wait.Duration `json:"interval,omitzero"`
}

// Texts are the texts of a service's settings that may hold ${VAR}.
func Texts(address string, headers map[string]string) []string {
	return append(slices.Collect(maps.Values(headers)), address)
}

// ours are the headers that evalrun sets itself.
var ours = []string{"Content-Length", "Content-Type", "Host", "Idempotency-Key", "Traceparent", "Transfer-Encoding"}

var headerName = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")

func parse(r *input.Reader, f *input.Fields) agent.Entry {
	s := new(Settings)
	s.URL, s.Headers, s.Interval = ParseRemote(r, f)
	e := agent.Entry{
		Settings:      s,
		ResumeWhen:    agent.ParseResumeWhen(f, agent.ResumeAny),
		AcceptsFaults: f.Bool("acceptsFaults", false),
		Timeout:       wait.Duration(f.Duration("timeout", 0)),
	}
	e.Name = f.String("name", NameOf(s.URL, Name))
	return e
}

// ParseRemote reads the keys that all agents have which are services: "url", "headers" and
// "interval".
func ParseRemote(r *input.Reader, f *input.Fields) (address string, headers map[string]string, interval wait.Duration) {
	address, headers = f.RequiredString("url"), f.StringMap("headers")
	interval = wait.Duration(f.Duration("interval", time.Second))
	if n := f.Get("interval"); n != nil && interval <= 0 {
		r.Errorf(n, "expected a duration above 0")
	}
	if n := f.Get("url"); n != nil && address != "" {
		if err := template.CheckURL(address, nil); err != nil {
			r.Errorf(n, "%s", err)
		}
	}
	if n := f.Get("headers"); n != nil {
		for _, m := range n.Members {
			checkHeader(r, m)
		}
	}
	return address, headers, interval
}

func checkHeader(r *input.Reader, m input.Member) {
	switch {
	case !headerName.MatchString(m.Key):
		r.Errorf(m.Value, "expected the name of a header, got %q", m.Key)
	case slices.Contains(ours, textproto.CanonicalMIMEHeaderKey(m.Key)):
		r.Errorf(m.Value, "evalrun sets the header %s itself", m.Key)
	case m.Value.Kind != input.String:
	case strings.ContainsAny(m.Value.Text, "\r\n\x00"):
		r.Errorf(m.Value, "expected the value of a header on one line")
	default:
		if err := template.Check(m.Value.Text); err != nil {
			r.Errorf(m.Value, "%s", err)
		}
		if strings.EqualFold(m.Key, "Authorization") && len(agent.VariablesIn(m.Value.Text)) == 0 {
			r.Warnf(m.Value, "what stands here is stored with every run; write it as a variable such as ${AGENT_TOKEN}")
		}
	}
}

// NameOf returns the name of an agent that has none: the host of its URL, or that of its type.
func NameOf(address, kind string) string {
	if u, err := url.Parse(address); err == nil && u.Host != "" && !strings.Contains(u.Host, "$") {
		return u.Host
	}
	return kind
}
