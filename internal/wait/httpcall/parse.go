package httpcall

import (
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/internal/jq"
	"github.com/evalrun/evalrun/internal/wait"
	"github.com/evalrun/evalrun/internal/wait/template"
)

// Reader reads what an eval set says of requests. Problems are recorded in R with their places.
type Reader struct{ R *input.Reader }

// Polling reads the intervals of polling; least and most are the usual ones.
func (p Reader) Polling(f *input.Fields, least, most time.Duration) Polling {
	c := Polling{wait.Duration(f.Duration("interval", least)), wait.Duration(f.Duration("maxInterval", most))}
	if n := f.Get("interval"); n != nil && c.Interval <= 0 {
		p.R.Errorf(n, "expected a duration above 0")
	}
	if c.MaxInterval < c.Interval {
		if n := f.Get("maxInterval"); n != nil {
			p.R.Errorf(n, "expected at least the interval, %s", time.Duration(c.Interval))
		}
		c.MaxInterval = c.Interval
	}
	return c
}

// Base checks the key url of an API: what stands before a path.
func (p Reader) Base(f *input.Fields, base, path string) {
	n := f.Get("url")
	switch {
	case n == nil || base == "":
	case strings.ContainsAny(base, "?#"):
		p.R.Errorf(n, "expected the URL that stands before %s, without a query or a fragment", path)
	default:
		if err := template.CheckURL(base, nil); err != nil {
			p.R.Errorf(n, "%s", err)
		}
	}
}

// Secret checks a text that should be a variable, such as example.
func (p Reader) Secret(f *input.Fields, name, example string) {
	n := f.Get(name)
	p.Line(n)
	if n == nil || n.Kind != input.String || n.Text == "" {
		return
	}
	used := map[string]bool{}
	if template.AddVariables(n.Text, used); len(used) == 0 && !strings.Contains(n.Text, "${") {
		p.R.Warnf(n, "what stands here is stored with every run; write it as a variable such as %s", example)
	}
}

// Line checks a text with ${VAR}s that goes into a header.
func (p Reader) Line(n *input.Node) {
	if n == nil || n.Kind != input.String {
		return
	}
	if template.CheckText(p.R, n); strings.ContainsAny(n.Text, "\r\n\x00") {
		p.R.Errorf(n, "expected a text on one line")
	}
}

// Headers checks the names and values of headers.
func (p Reader) Headers(f *input.Fields) {
	headers := f.Get("headers")
	if headers == nil {
		return
	}
	for _, m := range headers.Members {
		if !token.MatchString(m.Key) {
			p.R.Errorf(m.Value, "expected the name of a header, got %q", m.Key)
		}
		if strings.ContainsAny(m.Value.Text, "\r\n\x00") {
			p.R.Errorf(m.Value, "expected the value of a header on one line")
		}
		template.CheckText(p.R, m.Value)
	}
}

// token is what RFC 9110 allows as the name of a header, and as a method.
var token = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")

// Request reads a request; method is the usual one, and allowed are the placeholders that it may have.
func (p Reader) Request(f *input.Fields, method string, needsURL bool, allowed []string) *Request {
	q := &Request{
		Method: strings.ToUpper(f.String("method", method)), Headers: f.StringMap("headers"), Body: f.Get("body").JSON(),
	}
	if needsURL {
		q.URL = f.RequiredString("url")
	} else {
		q.URL = f.String("url", "")
	}
	if q.URL == "" {
		q.Method = ""
	} else if n := f.Get("method"); n != nil && !token.MatchString(q.Method) {
		p.R.Errorf(n, "expected an HTTP method, got %q", q.Method)
	}
	if n := f.Get("url"); n != nil && q.URL != "" {
		if err := template.CheckURL(q.URL, allowed); err != nil {
			p.R.Errorf(n, "%s", err)
		}
	}
	p.Headers(f)
	if body := f.Get("body"); body != nil {
		p.Body(body, append(slices.Clone(allowed), "inputArguments"))
	}
	return q
}

// Body checks the strings of a body template.
func (p Reader) Body(n *input.Node, allowed []string) {
	for _, item := range n.Items {
		p.Body(item, allowed)
	}
	for _, m := range n.Members {
		p.Body(m.Value, allowed)
	}
	if n.Kind != input.String {
		return
	}
	if name, ok := template.Whole(n.Text); ok {
		if !slices.Contains(allowed, name) {
			p.R.Warnf(n, "%s is not a placeholder here and is sent as it is%s", n.Text, input.Suggest(name, allowed))
		}
		return
	}
	for _, name := range allowed {
		if strings.Contains(n.Text, "{"+name+"}") && !strings.Contains(n.Text, "${"+name+"}") {
			p.R.Warnf(n, "{%s} is replaced only where it is the whole string", name)
		}
	}
	template.CheckText(p.R, n)
}

// JQ reads a jq expression and checks that it compiles.
func (p Reader) JQ(f *input.Fields, name string) string {
	expression := f.String(name, "")
	if expression == "" {
		return ""
	}
	if _, err := jq.Compile(expression); err != nil {
		p.R.Errorf(f.Get(name), "not a jq expression: %s", err)
	}
	return expression
}

// Without gives the placeholders of a URL except those that are not known yet.
func Without(names ...string) []string {
	var out []string
	for _, name := range template.Placeholders {
		if name != "inputArguments" && !slices.Contains(names, name) {
			out = append(out, name)
		}
	}
	return out
}

// IsToken reports whether a text can be the name of a header.
func IsToken(text string) bool { return token.MatchString(text) }
