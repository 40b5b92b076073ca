package wait

import (
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/internal/jq"
	"github.com/evalrun/evalrun/internal/wait/template"
)

const (
	defaultInterval    = 5 * time.Second
	defaultMaxInterval = time.Minute
	defaultKeyHeader   = "Idempotency-Key"
)

// ParseJobs reads the value of the eval set's key "jobs"; n may be nil. Problems are recorded in r
// with their places.
func ParseJobs(r *input.Reader, n *input.Node) Jobs {
	if n == nil || n.Kind == input.Null {
		return nil
	}
	if n.Kind != input.Object {
		r.Errorf(n, "expected an object of process names and their sources, got %s", n.Kind)
		return nil
	}
	jobs := make(Jobs, len(n.Members))
	for _, m := range n.Members {
		jobs[m.Key] = jobReader{r}.job(m.Value)
	}
	return jobs
}

type jobReader struct{ r *input.Reader }

func (p jobReader) job(n *input.Node) JobConfig {
	f := p.r.Object(n)
	if n.Kind != input.Object {
		return JobConfig{}
	}
	if !f.Has("source") {
		f.Required("source", input.String)
		return JobConfig{}
	}
	c := JobConfig{Source: f.Enum("source", "",
		SourceExternal, SourceExec, SourceHTTP, SourceUiPath, SourceMesh, SourceMCP,
		SourceFixed)}
	switch c.Source {
	case SourceExec:
		c.ExecConfig = p.exec(f)
	case SourceHTTP:
		c.HTTPConfig, c.Polling = p.http(f), p.polling(f, defaultInterval, defaultMaxInterval)
	case SourceUiPath:
		c.UiPathConfig, c.Polling = p.uipath(f), p.polling(f, defaultInterval, defaultMaxInterval)
	case SourceMesh:
		c.Handle = p.handle(f)
		c.Mesh, c.Polling = p.mesh(f), p.polling(f, defaultMeshInterval, defaultMeshMaxInterval)
	case SourceMCP:
		c.Handle = p.handle(f)
	case SourceFixed:
		c.Fixed = p.fixed(f)
	case "":
		return c // the other keys cannot be judged
	}
	f.Done()
	return c
}

func (p jobReader) exec(f *input.Fields) *ExecConfig {
	c := &ExecConfig{CWD: f.String("cwd", ""), Env: f.StringMap("env"), Timeout: Duration(f.Duration("timeout", 0))}
	if n := f.Required("command", input.Array); n != nil {
		c.Command = f.Strings("command")
		if len(c.Command) == 0 || c.Command[0] == "" {
			p.r.Errorf(n, "expected the program and its arguments, got none")
		}
		for _, arg := range n.Items {
			if used := map[string]bool{}; arg.Kind == input.String {
				if template.AddVariables(arg.Text, used); len(used) > 0 {
					p.r.Warnf(arg, "variables are not replaced in a command, which every process of the machine can read; use env")
				}
			}
		}
	}
	if env := f.Get("env"); env != nil {
		for _, m := range env.Members {
			if m.Key == "" || strings.ContainsAny(m.Key, "=\x00") {
				p.r.Errorf(m.Value, "expected the name of an environment variable, got %q", m.Key)
			}
			p.vars(m.Value)
		}
	}
	return c
}

func (p jobReader) http(f *input.Fields) *HTTPConfig {
	c := &HTTPConfig{
		ItemKey:           p.jq(f, "itemKey"),
		IdempotencyHeader: f.String("idempotencyHeader", ""),
		StartKind:         Start(f.Enum("startKind", "", string(Idempotent), string(Searchable), string(AtMostOnce))),
	}
	if n := f.Optional("start", input.Object); n != nil {
		g := p.r.Object(n)
		c.Start = p.request(g, http.MethodPost, true, without("itemKey"))
		g.Done()
	}
	if n := f.Required("status", input.Object); n != nil {
		g := p.r.Object(n)
		c.Status = StatusRequest{*p.request(g, http.MethodGet, true, without("webhookUrl")),
			p.jq(g, "done"), p.jq(g, "failed"), p.jq(g, "error")}
		g.Done()
	}
	if n := f.Optional("result", input.Object); n != nil {
		g := p.r.Object(n)
		c.Result = &ResultRequest{*p.request(g, http.MethodGet, false, without("webhookUrl")), p.jq(g, "value")}
		g.Done()
	}
	if value := p.jq(f, "value"); value != "" {
		if c.Result != nil {
			p.r.Errorf(f.Get("value"), "expected either value or result, got both")
		}
		c.Result = &ResultRequest{Value: value}
	}
	if n := f.Optional("cancel", input.Object); n != nil {
		g := p.r.Object(n)
		c.Cancel = p.request(g, http.MethodPost, true, without("webhookUrl"))
		g.Done()
	}
	if n := f.Optional("find", input.Object); n != nil {
		g := p.r.Object(n)
		c.Find = &FindRequest{*p.request(g, http.MethodGet, true, without("itemKey", "webhookUrl")), p.jq(g, "itemKey")}
		if !g.Has("itemKey") {
			p.r.Errorf(n, "itemKey is missing; expected a jq expression that gives the key of the job, or null")
		}
		g.Done()
	}
	p.consistent(f, c)
	return c
}

// consistent fills in the kind of a start, and checks what concerns several keys. A start must be
// known to be safe before it is one that is repeated.
func (p jobReader) consistent(f *input.Fields, c *HTTPConfig) {
	switch {
	case c.StartKind == Searchable && c.Find == nil:
		p.r.Errorf(f.Get("startKind"), "searchable needs the key find, a request that looks for a job by {triggerId}")
	case c.StartKind != "":
	case c.Find != nil:
		c.StartKind = Searchable
	case c.IdempotencyHeader != "":
		c.StartKind = Idempotent
	default:
		c.StartKind = AtMostOnce
	}
	if c.IdempotencyHeader == "" && c.StartKind == Idempotent {
		c.IdempotencyHeader = defaultKeyHeader
	}
	if n := f.Get("idempotencyHeader"); n != nil && !token.MatchString(c.IdempotencyHeader) {
		p.r.Errorf(n, "expected the name of a header, got %q", c.IdempotencyHeader)
	}
}

func (p jobReader) polling(f *input.Fields, least, most time.Duration) Polling {
	c := Polling{Duration(f.Duration("interval", least)), Duration(f.Duration("maxInterval", most))}
	if n := f.Get("interval"); n != nil && c.Interval <= 0 {
		p.r.Errorf(n, "expected a duration above 0")
	}
	if c.MaxInterval < c.Interval {
		if n := f.Get("maxInterval"); n != nil {
			p.r.Errorf(n, "expected at least the interval, %s", time.Duration(c.Interval))
		}
		c.MaxInterval = c.Interval
	}
	return c
}

func (p jobReader) uipath(f *input.Fields) *UiPathConfig {
	c := &UiPathConfig{
		URL: f.RequiredString("url"), Token: f.RequiredString("token"),
		FolderKey: f.String("folderKey", ""), FolderPath: f.String("folderPath", ""),
	}
	p.base(f, c.URL, "/odata")
	p.secret(f, "token", "${UIPATH_ACCESS_TOKEN}")
	p.line(f.Get("folderKey"))
	p.line(f.Get("folderPath"))
	if n := f.Get("folderPath"); n != nil && c.FolderKey != "" && c.FolderPath != "" {
		p.r.Errorf(n, "expected either folderKey or folderPath, got both")
	}
	return c
}

// base checks the key url of an API: what stands before a path.
func (p jobReader) base(f *input.Fields, base, path string) {
	n := f.Get("url")
	switch {
	case n == nil || base == "":
	case strings.ContainsAny(base, "?#"):
		p.r.Errorf(n, "expected the URL that stands before %s, without a query or a fragment", path)
	default:
		if err := template.CheckURL(base, nil); err != nil {
			p.r.Errorf(n, "%s", err)
		}
	}
}

// secret checks a text that should be a variable, such as example.
func (p jobReader) secret(f *input.Fields, name, example string) {
	n := f.Get(name)
	p.line(n)
	if n == nil || n.Kind != input.String || n.Text == "" {
		return
	}
	used := map[string]bool{}
	if template.AddVariables(n.Text, used); len(used) == 0 && !strings.Contains(n.Text, "${") {
		p.r.Warnf(n, "what stands here is stored with every run; write it as a variable such as %s", example)
	}
}

// line checks a text with ${VAR}s that goes into a header.
func (p jobReader) line(n *input.Node) {
	if n == nil || n.Kind != input.String {
		return
	}
	if p.vars(n); strings.ContainsAny(n.Text, "\r\n\x00") {
		p.r.Errorf(n, "expected a text on one line")
	}
}

// headers checks the names and values of headers.
func (p jobReader) headers(f *input.Fields) {
	headers := f.Get("headers")
	if headers == nil {
		return
	}
	for _, m := range headers.Members {
		if !token.MatchString(m.Key) {
			p.r.Errorf(m.Value, "expected the name of a header, got %q", m.Key)
		}
		if strings.ContainsAny(m.Value.Text, "\r\n\x00") {
			p.r.Errorf(m.Value, "expected the value of a header on one line")
		}
		p.vars(m.Value)
	}
}

// token is what RFC 9110 allows as the name of a header, and as a method.
var token = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")

func (p jobReader) request(f *input.Fields, method string, needsURL bool, allowed []string) *Request {
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
		p.r.Errorf(n, "expected an HTTP method, got %q", q.Method)
	}
	if n := f.Get("url"); n != nil && q.URL != "" {
		if err := template.CheckURL(q.URL, allowed); err != nil {
			p.r.Errorf(n, "%s", err)
		}
	}
	p.headers(f)
	if body := f.Get("body"); body != nil {
		p.body(body, append(slices.Clone(allowed), "inputArguments"))
	}
	return q
}

// body checks the strings of a body template.
func (p jobReader) body(n *input.Node, allowed []string) {
	for _, item := range n.Items {
		p.body(item, allowed)
	}
	for _, m := range n.Members {
		p.body(m.Value, allowed)
	}
	if n.Kind != input.String {
		return
	}
	if name, ok := template.Whole(n.Text); ok {
		if !slices.Contains(allowed, name) {
			p.r.Warnf(n, "%s is not a placeholder here and is sent as it is%s", n.Text, input.Suggest(name, allowed))
		}
		return
	}
	for _, name := range allowed {
		if strings.Contains(n.Text, "{"+name+"}") && !strings.Contains(n.Text, "${"+name+"}") {
			p.r.Warnf(n, "{%s} is replaced only where it is the whole string", name)
		}
	}
	p.vars(n)
}

// vars checks the ${VAR}s of a string.
func (p jobReader) vars(n *input.Node) {
	if n.Kind != input.String {
		return
	}
	if err := template.Check(n.Text); err != nil {
		p.r.Errorf(n, "%s", err)
	}
}

// jq reads a jq expression and checks that it compiles.
func (p jobReader) jq(f *input.Fields, name string) string {
	expression := f.String(name, "")
	if expression == "" {
		return ""
	}
	if _, err := jq.Compile(expression); err != nil {
		p.r.Errorf(f.Get(name), "not a jq expression: %s", err)
	}
	return expression
}

// without gives the placeholders of a URL except those that are not known yet.
func without(names ...string) []string {
	var out []string
	for _, name := range template.Placeholders {
		if name != "inputArguments" && !slices.Contains(names, name) {
			out = append(out, name)
		}
	}
	return out
}

// handle reads where the handle of a job is in a result.
func (p jobReader) handle(f *input.Fields) string {
	path := f.String("handle", "")
	if n := f.Get("handle"); n != nil && n.Kind == input.String && slices.Contains(strings.Split(path, "."), "") {
		p.r.Errorf(n, `expected the names of members with dots between them, such as "job.id"`)
	}
	return path
}
