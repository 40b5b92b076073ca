package mcp

import (
	"encoding/json"
	"net/http"
	"testing"
)

func TestCheckParamHeaders(t *testing.T) {
	schema := `{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"},"n":{"type":"integer","x-mcp-header":"N"},
		"on":{"type":"boolean","x-mcp-header":"On"},"f":{"type":"number","x-mcp-header":"F"},"plain":{"type":"string"},
		"in":{"type":"object","properties":{"deep":{"type":"string","x-mcp-header":"Deep"}}}}}`
	tests := []struct {
		arguments string
		headers   map[string]string
		ok        bool
	}{
		{`{}`, nil, true},
		{``, nil, true},
		{`{"plain":"x"}`, nil, true},
		{`{"region":"Hello"}`, map[string]string{"Region": "Hello"}, true},
		{`{"region":"Hello"}`, map[string]string{"Region": "=?base64?SGVsbG8=?="}, true},
		{`{"region":"Hello"}`, map[string]string{"Region": "=?base64?SGVsbG8?="}, false},
		{`{"region":"Hello"}`, map[string]string{"Region": "=?base64?SGVs!!!bG8=?="}, false},
		{`{"region":"SGVsbG8="}`, map[string]string{"Region": "SGVsbG8="}, true},
		{`{"region":"=?base64?SGVsbG8="}`, map[string]string{"Region": "=?base64?SGVsbG8="}, true},
		{`{"region":"Hello"}`, nil, false},
		{`{"region":"Hello"}`, map[string]string{"Region": "hello"}, false},
		{`{"region":null}`, nil, true},
		{`{"region":null}`, map[string]string{"Region": "null"}, false},
		{`{}`, map[string]string{"Region": "x"}, false},
		{`{"region":""}`, map[string]string{"Region": ""}, true},
		{`{"n":7}`, map[string]string{"N": "7"}, true},
		{`{"n":7.0}`, map[string]string{"N": "7"}, true},
		{`{"n":7}`, map[string]string{"N": "7.0"}, true},
		{`{"n":7}`, map[string]string{"N": "8"}, false},
		{`{"n":9007199254740993}`, nil, true}, // no client can write it
		{`{"n":9007199254740993}`, map[string]string{"N": "9007199254740992"}, false},
		{`{"region":"7.0"}`, map[string]string{"Region": "7"}, false},
		{`{"on":true}`, map[string]string{"On": "true"}, true},
		{`{"on":true}`, map[string]string{"On": "True"}, false},
		{`{"f":1.5}`, nil, true},
		{`{"in":{"deep":"x"}}`, map[string]string{"Deep": "x"}, true},
		{`{"in":{"deep":"x"}}`, nil, false},
		{`{"in":7}`, nil, true},
		{`[]`, nil, true},
	}
	for _, test := range tests {
		header := http.Header{headerVersion: {Version2026_07_28}}
		for name, value := range test.headers {
			header.Set(headerParam+name, value)
		}
		err := CheckParamHeaders(header, json.RawMessage(schema), json.RawMessage(test.arguments))
		if (err == nil) != test.ok || err != nil && err.Code != CodeHeaderMismatch {
			t.Errorf("%s with %v: %v", test.arguments, test.headers, err)
		}
	}
	args := json.RawMessage(`{"region":"x"}`)
	if err := CheckParamHeaders(nil, json.RawMessage(schema), args); err != nil {
		t.Error("stdio:", err)
	}
	if err := CheckParamHeaders(http.Header{}, json.RawMessage(schema), args); err != nil {
		t.Error("legacy:", err)
	}
	for _, broken := range []string{``, `null`, `7`, `{"properties":7}`, `{"properties":{"region":7}}`} {
		if err := CheckParamHeaders(http.Header{headerVersion: {Version2026_07_28}}, json.RawMessage(broken), args); err != nil {
			t.Errorf("schema %s: %v", broken, err)
		}
	}
}
