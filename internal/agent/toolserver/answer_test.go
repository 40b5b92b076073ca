package toolserver

import (
	"encoding/json"
	"testing"

	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/wait"
)

func TestElicited(t *testing.T) {
	const (
		form  = `{"message":"?","requestedSchema":{"type":"object","properties":{"name":{"type":"string"},"amount":{"type":"integer"}}}}`
		odd   = `{"message":"?","requestedSchema":{"type":"object","properties":{"action":{"type":"string"},"env":{"type":"string"}}}}`
		page  = `{"mode":"url","message":"?","url":"https://x"}`
		one   = `{"k":{"method":"elicitation/create","params":` + form + `},"r":{"method":"roots/list"}}`
		two   = `{"a":{"method":"elicitation/create","params":` + form + `},"b":{"method":"elicitation/create","params":` + form + `}}`
		plain = `{"action":"decline"}`
	)
	accept := func(content string) string { return `{"action":"accept","content":` + content + `}` }
	for _, c := range []struct{ name, asked, params, payload, a, b string }{
		{"approve", one, form, `{"action":"approve","approved":true}`, accept(`{}`), ""},
		{"approve with data", one, form, `{"action":"approve","approved":true,"reason":"ok","data":{"name":"Ada","n":9007199254740993}}`, accept(`{"name":"Ada","n":9007199254740993}`), ""},
		{"approve, of a form that asks for an action", one, odd, `{"action":"approve","approved":true,"data":{"action":"x"}}`, accept(`{"action":"x"}`), ""},
		{"deny", one, form, `{"action":"deny","approved":false}`, plain, ""},
		{"an ElicitResult", one, form, accept(`{"name":"Ada"}`), accept(`{"name":"Ada"}`), ""},
		{"an ElicitResult that cancels", one, form, `{"action":"cancel"}`, `{"action":"cancel"}`, ""},
		{"the content", one, form, `{"name":"Ada"}`, accept(`{"name":"Ada"}`), ""},
		{"the content of a form that asks for an action", one, odd, `{"action":"deploy","env":"prod"}`, accept(`{"action":"deploy","env":"prod"}`), ""},
		{"content beside an approval", one, form, `{"approved":true,"amount":12}`, accept(`{"amount":12}`), ""},
		{"content that the form does not know", one, page, `{"code":1}`, accept(`{"code":1}`), ""},
		{"yes", one, page, `"yes"`, accept(`{}`), ""},
		{"no", one, page, `false`, plain, ""},
		{"of a task of 2025-11-25", "", form, `{"name":"Ada"}`, accept(`{"name":"Ada"}`), ""},
		{"two, by their keys", two, form, `{"a":{"name":"first"},"b":{"action":"cancel"}}`, accept(`{"name":"first"}`), `{"action":"cancel"}`},
		{"two, of which one is not answered", two, form, `{"b":{"name":"second"}}`, plain, accept(`{"name":"second"}`)},
		{"two with one answer", two, form, `{"name":"both"}`, accept(`{"name":"both"}`), accept(`{"name":"both"}`)},
	} {
		t.Run(c.name, func(t *testing.T) {
			reply := Elicited(agent.Delivery{Payload: json.RawMessage(c.payload)}, wait.Input{Requests: json.RawMessage(c.asked)})
			if got := string(reply("a", json.RawMessage(c.params))); got != c.a {
				t.Errorf("got %s, want %s", got, c.a)
			}
			if got := string(reply("b", json.RawMessage(c.params))); c.b != "" && got != c.b {
				t.Errorf("got %s for the second, want %s", got, c.b)
			}
		})
	}
	failed := Elicited(agent.Delivery{Payload: json.RawMessage("null"), Error: &wait.Error{Code: "expired"}}, wait.Input{})
	if got := string(failed("", nil)); got != `{"action":"cancel"}` {
		t.Errorf("without an answer: %s", got)
	}
}

func TestDecide(t *testing.T) {
	for payload, want := range map[string]Decision{
		`{"approved":true}`:                         {true, ""},
		`{"approved":false,"action":"approve"}`:     {false, ""},
		`{"action":"Approve","data":{"budget":3}}`:  {true, `{"budget":3}`},
		`{"action":"deny","reason":"no","data":[]}`: {false, "no"},
		`true`:               {true, ""},
		`false`:              {false, ""},
		`"yes"`:              {true, "yes"},
		`"Allowed"`:          {true, "Allowed"},
		`" allow\n"`:         {true, " allow\n"},
		`"approved"`:         {true, "approved"},
		`"approve"`:          {true, "approve"},
		`"rather not"`:       {false, "rather not"},
		`null`:               {false, ""},
		`42`:                 {false, "42"},
		`["yes"]`:            {false, `["yes"]`},
		`{"colour":"blue"}`:  {false, `{"colour":"blue"}`},
		`{"approved":"yes"}`: {false, `{"approved":"yes"}`},
		``:                   {false, ""},
	} {
		if got := Decide(agent.Delivery{Payload: json.RawMessage(payload)}); got != want {
			t.Errorf("%s: got %+v, want %+v", payload, got, want)
		}
	}
}
