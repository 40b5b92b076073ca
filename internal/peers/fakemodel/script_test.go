package fakemodel

import (
	"strings"
	"testing"
)

func TestScripts(t *testing.T) {
	user := func(text string) Message { return Message{Role: "user", Text: text} }
	result := Message{Role: "tool", Results: []Result{{"1", "r"}}}
	tools := []string{"a_probe", "b_probe", "wait"}
	for _, c := range []struct {
		name    string
		history []Message
		want    string
	}{
		{"no directive", []Message{user("hello [[x]]")}, "There is no directive in what you say."},
		{"text", []Message{user("[[SAY one]] [[SAY two]]")}, "two"},
		{"nothing but a call", []Message{user("[[CALL wait]]"), result}, "done"},
		{"the first that matches", []Message{user("[[CALL probe]]")}, "a_probe {}"},
		{"a pattern", []Message{user("[[CALL ^b_]]")}, "b_probe {}"},
		{"one after another", []Message{user(`[[CALL a_ {"n":1}]][[CALL wait {"ms":5}]]`), result}, `wait {"ms":5}`},
		{"results of before do not count", []Message{user("[[CALL wait]]"), result, {Role: "assistant", Text: "[[SAY not me]]"}, user("[[CALL b_]]")}, "b_probe {}"},
		{"a later text without directive changes nothing", []Message{user("[[SAY x]]"), user("a reminder")}, "x"},
		{"server and tool", []Message{user("[[CALL a.probe]]")}, "a_probe {}"},
		{"another server's", []Message{user("[[CALL c.probe]]")}, "None of the 3 tools matches c[\\W_]*probe$."},
		{"no such tool", []Message{user("[[CALL zz]]")}, "None of the 3 tools matches zz."},
		{"open", []Message{user("[[SAY x")}, "error: directive SAY: expected ]] at its end"},
		{"open call", []Message{user("[[CALL x")}, "error: directive CALL: expected ]] at its end"},
		{"bad arguments", []Message{user("[[CALL x {]]")}, "error: directive CALL: the arguments of x: "},
		{"more than arguments", []Message{user("[[CALL x {} {}]]")}, "error: directive CALL: expected ]] after the arguments of x"},
		{"bad pattern", []Message{user("[[CALL ( {}]]")}, "error: directive CALL: error parsing regexp"},
		{"bad status", []Message{user("[[ERR 200]]")}, "error: directive ERR: expected an HTTP status from 400 to 599, got 200"},
		{"bad time", []Message{user("[[SLEEP long]]")}, "error: directive SLEEP: "},
	} {
		s, err := parseScript(c.history, nil)
		var got string
		if err != nil {
			got = "error: " + err.Error()
		} else if a := s.next(Request{Tools: tools}); a.call != nil {
			got = a.call.Name + " " + string(a.call.Args)
		} else {
			got = a.text
		}
		if !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
}
