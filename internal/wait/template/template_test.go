package template

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"
)

func known(values map[string]string) Resolver {
	return func(name string) (string, bool) { v, ok := values[name]; return v, ok }
}

func TestURL(t *testing.T) {
	vars := known(map[string]string{"BASE": "https://h.example/api", "Q": "a=1&b=2", "KEY": "k/{itemKey}"})
	for _, c := range []struct{ template, value, want string }{
		{"https://h/jobs/{itemKey}", "job-1", "https://h/jobs/job-1"},
		{"https://h/jobs/{itemKey}/x", "a b/ü?#%2e&", "https://h/jobs/a%20b%2F%C3%BC%3F%23%252e&/x"},
		{"https://h/jobs?key={itemKey}&x=1", "a b&c=d/../#", "https://h/jobs?key=a+b%26c%3Dd%2F..%2F%23&x=1"},
		{"https://h/jobs?key={itemKey}", "", "https://h/jobs?key="},
		{"https://h/jobs('{itemKey}')", "..", ""},
		{"https://h/v.{itemKey}", "1", "https://h/v.1"},
		{"${BASE}/jobs/{itemKey}?${Q}", "x", "https://h.example/api/jobs/x?a=1&b=2"},
		{"https://h/${KEY}/{itemKey}", "x", "https://h/k/%7BitemKey%7D/x"}, // a variable's value is no template
		{"https://h/jobs/{itemKey}", "", ""},
		{"https://h/jobs/{itemKey}", ".", ""},
		{"https://h/jobs/{itemKey}", "..", ""},
		{"https://h/jobs/{itemKey}", "a/../../admin", ""},
		{"https://h/jobs/{itemKey}", `..\admin`, ""},
		{"https://h/jobs/.{itemKey}", ".", ""},
		{"https://h/jobs/{itemKey}", "@evil.example/", "https://h/jobs/@evil.example%2F"},
		{"https://h/{itemKey}", "/evil.example", "https://h/%2Fevil.example"},
		{"https://h/jobs/{itemKey}", "a\r\nHost: x", "https://h/jobs/a%0D%0AHost:%20x"},
	} {
		got, err := URL(c.template, vars, map[string]string{"itemKey": c.value})
		if c.want == "" && err == nil || c.want != "" && got != c.want {
			t.Errorf("%s with %q: expected %s, got %s, %v", c.template, c.value, c.want, got, err)
		}
	}
}

func TestUnknownVariableIsNamed(t *testing.T) {
	_, err := URL("https://h/${TOKEN}", nil, nil)
	if err == nil || !strings.Contains(err.Error(), "the variable ${TOKEN} has no value; pass it with --env TOKEN") {
		t.Error(err)
	}
}

// Whatever a model says, the URL's host stays, and so does the number of its path's segments and
// query's parameters.
func FuzzURL(f *testing.F) {
	for _, seed := range []string{"job-1", "..", "../..", "%2e%2e", "a/b", "?x=1", "#", "@h", ":80", "//e", "\\", "\x00\n", "{itemKey}", "${X}", "&a=b", ";", "日本"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		got, err := URL("https://host/jobs/{itemKey}/x?key={itemKey}&last=1", nil, map[string]string{"itemKey": value})
		if err != nil {
			return
		}
		u, err := url.Parse(got)
		if err != nil {
			t.Fatal(err)
		}
		q, err := url.ParseQuery(u.RawQuery)
		if err != nil || len(q) != 2 || q.Get("key") != value || q.Get("last") != "1" || u.Host != "host" || u.Fragment != "" || u.Path != "/jobs/"+value+"/x" ||
			strings.Count(u.EscapedPath(), "/") != 3 {
			t.Fatalf("%q gave %s", value, got)
		}
	})
}

func TestBody(t *testing.T) {
	template := json.RawMessage(`{"key":"{triggerId}","n":12345678901234567890,"args":"{inputArguments}","list":["{process}","x {process}"],"s":"Bearer ${T}","o":"{other}"}`)
	got, err := Body(template, known(map[string]string{"T": `a"b`}), map[string]string{"triggerId": "t", "process": `P","x":"`}, map[string]json.RawMessage{"inputArguments": json.RawMessage(`{"a":1.50}`)})
	if want := `{"args":{"a":1.50},"key":"t","list":["P\",\"x\":\"","x {process}"],"n":12345678901234567890,"o":"{other}","s":"Bearer a\"b"}`; err != nil || string(got) != want {
		t.Errorf("expected\n%s\ngot\n%s, %v", want, got, err)
	}
}
