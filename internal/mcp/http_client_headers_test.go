package mcp

import (
	"encoding/json"
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/evalrun/evalrun/internal/testenv"
)

func TestClientPutsIntoHeadersWhatIsInTheBody(t *testing.T) {
	const schema = `{"type":"object","properties":{
		"region":{"type":"string","x-mcp-header":"Region"},"n":{"type":"integer","x-mcp-header":"N"},"on":{"type":"boolean","x-mcp-header":"On"},
		"plain":{"type":"string"},"deep":{"type":"object","properties":{"er":{"type":"string","x-mcp-header":"Deeper"}}}}}`
	headers := make(chan http.Header, 1)
	s := clientServe(t, func(x clientExchange) {
		if x.Method == MethodToolsList {
			x.json(`{"tools":[null,{"name":"t","inputSchema":` + schema + `},
				{"name":"bad","inputSchema":{"properties":{"a":{"type":"number","x-mcp-header":"A"}}}}]}`)
			return
		}
		headers <- x.r.Header
		x.json(`{}`)
	})
	c := clientDial(t, Target{URL: s.URL}, ClientOptions{Session: &SessionState{Era: Modern, Version: Version2026_07_28}})
	if _, err := c.Call(clientSoon(t), Call{Method: MethodToolsList}); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		call Call
		want map[string]string // all that begin with Mcp-, but for the version
	}{
		{clientCallTool("t", `{"region":"eu","n":5.0,"on":false,"plain":"p","deep":{"er":"d"}}`),
			map[string]string{"Mcp-Name": "t", "Mcp-Param-Region": "eu", "Mcp-Param-N": "5", "Mcp-Param-On": "false", "Mcp-Param-Deeper": "d"}},
		{clientCallTool("t", `{"region":" ö","n":9007199254740993,"on":null,"deep":[]}`),
			map[string]string{"Mcp-Name": "t", "Mcp-Param-Region": "=?base64?IMO2?="}},
		{clientCallTool("t", `{"region":"","n":1e400}`), map[string]string{"Mcp-Name": "t", "Mcp-Param-Region": "=?base64??="}},
		{clientCallTool("other", `{"region":"eu"}`), map[string]string{"Mcp-Name": "other"}},
		{Call{Method: "prompts/get", Params: json.RawMessage(`{"name":"p\n"}`)}, map[string]string{"Mcp-Name": "=?base64?cAo=?="}},
		{Call{Method: "resources/read", Params: json.RawMessage(`{"uri":"file:///a b","name":"x"}`)}, map[string]string{"Mcp-Name": "file:///a b"}},
		{Call{Method: MethodTasksGet, Params: json.RawMessage(`{"taskId":"=?base64?x?="}`)}, map[string]string{"Mcp-Name": "=?base64?PT9iYXNlNjQ/eD89?="}},
		{Call{Method: "prompts/list"}, map[string]string{}},
	}
	for _, test := range tests {
		if _, err := c.Call(clientSoon(t), test.call); err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for name, values := range testenv.Receive(t, headers) {
			if strings.HasPrefix(name, "Mcp-") && name != "Mcp-Protocol-Version" {
				got[name] = strings.Join(values, ",")
			}
		}
		want := maps.Clone(test.want)
		want["Mcp-Method"] = test.call.Method
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", test.call.Params, diff)
		}
	}
	if _, err := c.Call(clientSoon(t), clientCallTool("bad", `{}`)); err == nil || !strings.Contains(err.Error(), "only for a string") {
		t.Errorf("the error of a tool with a bad annotation is %v", err)
	}
}

func TestClientJudgesHeaderAnnotations(t *testing.T) {
	tests := []struct{ properties, invalid string }{
		{`{"a":{"type":"string","x-mcp-header":""}}`, "no header name"},
		{`{"a":{"type":"string","x-mcp-header":7}}`, "no header name"},
		{`{"a":{"type":"string","x-mcp-header":"My Region"}}`, "no header name"},
		{`{"a":{"type":"string","x-mcp-header":"Régio"}}`, "no header name"},
		{`{"a":{"type":"string","x-mcp-header":"A:B"}}`, "no header name"},
		{`{"a":{"type":"object","x-mcp-header":"A"}}`, "only for a string"},
		{`{"a":{"x-mcp-header":"A"}}`, "only for a string"},
		{`{"a":{"type":"string","x-mcp-header":"A"},"b":{"type":"string","x-mcp-header":"a"}}`, "comes twice"},
		{`{"a":{"type":"string","x-mcp-header":"A!#~"},"b":true,"c":{"properties":[]}}`, ""},
	}
	for _, test := range tests {
		l := newHTTPLink(newClient(ClientOptions{}, "", 0), Target{URL: "http://127.0.0.1:1"})
		l.rememberTools(json.RawMessage(`{"tools":[{"name":"t","inputSchema":{"properties":` + test.properties + `}}]}`))
		got := ""
		if err := l.tools["t"].invalid; err != nil {
			got = err.Error()
		}
		if (got == "") != (test.invalid == "") || !strings.Contains(got, test.invalid) {
			t.Errorf("%s: %q; want %q", test.properties, got, test.invalid)
		}
	}
}
