package serve_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"mime"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/evalrun/evalrun/internal/serve"
	"github.com/evalrun/evalrun/internal/serve/jobs"
	"github.com/evalrun/evalrun/internal/testenv"
	"github.com/evalrun/evalrun/internal/webhook"
	"github.com/evalrun/evalrun/schemas"
)

// contract is the OpenAPI document, against which every answer of the tests of this package is
// held.
type contract struct {
	operations map[string]operation // by method and path
	schemas    map[string]*jsonschema.Resolved

	mu sync.Mutex
	// seen are the operations with their statuses that some test has seen.
	seen map[string]bool
}

type operation struct {
	Responses map[string]response
	Security  *[]json.RawMessage
}

type response struct {
	Ref     string `json:"$ref"`
	Content map[string]struct {
		Schema struct {
			Ref string `json:"$ref"`
		}
	}
}

var theContract = sync.OnceValue(func() *contract {
	var doc struct {
		Paths      map[string]map[string]operation
		Components struct {
			Schemas   map[string]json.RawMessage
			Responses map[string]response
		}
	}
	check(json.Unmarshal(schemas.OpenAPI, &doc))
	c := &contract{operations: map[string]operation{}, schemas: map[string]*jsonschema.Resolved{}, seen: map[string]bool{}}
	for path, methods := range doc.Paths {
		for method, op := range methods {
			for status, r := range op.Responses {
				if name, ok := strings.CutPrefix(r.Ref, "#/components/responses/"); ok {
					op.Responses[status] = doc.Components.Responses[name]
				}
			}
			c.operations[strings.ToUpper(method)+" "+path] = op
		}
	}
	all, err := json.Marshal(doc.Components.Schemas)
	check(err)
	for name := range doc.Components.Schemas {
		text := fmt.Sprintf(`{"$ref": "#/components/schemas/%s", "$defs": %s}`, name, all)
		var s jsonschema.Schema
		check(json.Unmarshal([]byte(strings.ReplaceAll(text, "#/components/schemas/", "#/$defs/")), &s))
		c.schemas[name], err = s.Resolve(nil)
		check(err)
	}
	return c
})

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// operationOf finds the operation of a request.
func (c *contract) operationOf(method, path string) (string, bool) {
	path, _, _ = strings.Cut(path, "?")
	parts := strings.Split(path, "/")
	found := ""
	for key := range c.operations {
		m, template, _ := strings.Cut(key, " ")
		want := strings.Split(template, "/")
		if m != method || len(want) != len(parts) {
			continue
		}
		same := true
		for i := range want {
			same = same && (want[i] == parts[i] || strings.HasPrefix(want[i], "{") && parts[i] != "")
		}
		if same && (found == "" || strings.Count(template, "{") < strings.Count(found, "{")) {
			found = key
		}
	}
	return found, found != ""
}

// holds makes sure that an answer is one of those that the document describes.
func (c *contract) holds(t testing.TB, method, path string, a answer) {
	t.Helper()
	key, ok := c.operationOf(method, path)
	if !ok {
		return
	}
	status := fmt.Sprint(a.StatusCode)
	r, ok := c.operations[key].Responses[status]
	if !ok && a.StatusCode != 429 && a.StatusCode < 500 {
		t.Errorf("%s: the status %s is not described", key, status)
		return
	}
	if !ok {
		r = c.operations[key].Responses["default"]
	}
	c.mu.Lock()
	c.seen[key+" "+status] = true
	c.mu.Unlock()
	if len(r.Content) == 0 && a.body != "" {
		t.Errorf("%s: %s has a body, which is not described", key, status)
		return
	}
	if len(r.Content) == 0 {
		return
	}
	kind, _, _ := mime.ParseMediaType(a.Header.Get("Content-Type"))
	content, ok := r.Content[kind]
	if !ok {
		t.Errorf("%s: %s has the type %q, which is not described", key, status, kind)
		return
	}
	name := strings.TrimPrefix(content.Schema.Ref, "#/components/schemas/")
	if name == "" {
		return
	}
	var document any
	if err := json.Unmarshal([]byte(a.body), &document); err != nil {
		t.Errorf("%s: %s: %v", key, status, err)
	} else if err := c.schemas[name].Validate(document); err != nil {
		t.Errorf("%s: %s is no %s: %v\n%s", key, status, name, err, a.body)
	}
}

// missing are the answers that are described and that no test has seen.
func (c *contract) missing() (out []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(c.operations)) {
		for _, status := range slices.Sorted(maps.Keys(c.operations[key].Responses)) {
			if one := key + " " + status; status != "default" && !c.seen[one] {
				out = append(out, one)
			}
		}
	}
	return out
}

func TestMain(m *testing.M) {
	flag.Parse()
	code := m.Run()
	whole := !testenv.Quick() && flag.Lookup("test.run").Value.String() == "" && flag.Lookup("test.skip").Value.String() == "" && flag.Lookup("test.list").Value.String() == ""
	if missing := theContract().missing(); code == 0 && whole && len(missing) > 0 {
		fmt.Printf("schemas/openapi.json describes answers that no test has seen:\n  %s\n", strings.Join(missing, "\n  "))
		code = 1
	}
	os.Exit(code)
}

func TestTheDescriptionIsThatOfTheHandlers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var routes []string
	for _, p := range w.server.Patterns() {
		ofRegistry := slices.ContainsFunc(jobs.Endpoints, func(e jobs.Endpoint) bool { return e.Pattern == p })
		switch {
		case p == "/mcp" || ofRegistry || w.server.IsPage(p): // which others describe
		case p == webhook.Path:
			routes = append(routes, "POST "+p+"{token}", "POST "+p+"{token}/fail")
		default:
			routes = append(routes, p)
		}
	}
	slices.Sort(routes)
	described := slices.Sorted(maps.Keys(theContract().operations))
	if !slices.Equal(routes, described) {
		t.Errorf("the routes are\n  %s\nand schemas/openapi.json describes\n  %s", strings.Join(routes, "\n  "), strings.Join(described, "\n  "))
	}
	a := w.must(200, "GET", "/v1/openapi.json", "")
	if a.body != string(schemas.OpenAPI) {
		t.Error("/v1/openapi.json is another one")
	}
	var event struct {
		Properties struct{ Type struct{ Enum []string } }
	}
	data, err := schemas.FS.ReadFile("event.schema.json")
	check(err)
	check(json.Unmarshal(data, &event))
	if !slices.Equal(event.Properties.Type.Enum, serve.EventTypes) {
		t.Errorf("the types of events are %q, those that may be asked for %q", event.Properties.Type.Enum, serve.EventTypes)
	}
}

func TestThePrivateRoutesAreClosed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	wrong := w.newToken("none")
	for key, op := range theContract().operations {
		method, path, _ := strings.Cut(key, " ")
		path = strings.NewReplacer("{runId}", "r", "{rolloutId}", "r", "{triggerId}", "t", "{token}", "t").Replace(path)
		w.must(421, method, path, "", "Host", "evil.example.com")
		if op.Security != nil {
			continue
		}
		w.must(401, method, path, "", "Authorization", "")
		w.must(401, method, path, "", "Authorization", "Basic eDp5")
		w.must(403, method, path, "", "Authorization", "Bearer "+wrong)
		if method != "GET" {
			w.must(403, method, path, "", "Origin", "http://evil.example.com")
		}
	}
}
