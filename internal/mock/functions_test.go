package mock

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/internal/input"
)

func functions(t *testing.T, text string) (*Functions, bool, string) {
	t.Helper()
	n, err := input.ParseJSON("s.json", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	r := &input.Reader{}
	f := ParseFunctions(r, n, "evaluation 1 mockingStrategy")
	if err := r.Problems.Err(true); err != nil {
		return f, HasCode(n), err.Error()
	}
	return f, HasCode(n), ""
}

func TestFunctionsThatArePlayed(t *testing.T) {
	const answer = `"then": [{"type": "return", "value": null}]`
	f, code, wrong := functions(t, `{"type": "mockito", "behaviors": [
		{"function": "rate", "arguments": {"args": ["EUR"]}, `+answer+`}, {"function": "rate", "arguments": null, `+answer+`},
		{"function": "fee", "then": [{"type": "raise", "value": {"_target_": "builtins.ValueError"}}]}]}`)
	if wrong != "" || !slices.Equal(f.Names, []string{"rate", "fee"}) || !json.Valid(f.Strategy) || !code {
		t.Errorf("got %+v, code %v, %s", f, code, wrong)
	}
	m := &Mocks{Functions: map[string]*Functions{"1": f, "2": f}}
	places := m.Places(func(id string) bool { return id == "1" })
	if !slices.Equal(places, []string{"evaluation 1 mockingStrategy rate", "evaluation 1 mockingStrategy fee"}) || m.Tools() {
		t.Errorf("got %v", places)
	}
	if f, code, wrong := functions(t, `{"type": "mockito", "config": [{"function": "rate", `+answer+`}]}`); wrong != "" || code || f.Names[0] != "rate" {
		t.Errorf("got %+v, code %v, %s", f, code, wrong)
	}
	for text, says := range map[string]string{
		`{"type": "mockito"}`:                                                                             `behaviors`,
		`{"type": "mockito", "behaviors": {}}`:                                                            `expected an array`,
		`{"type": "mockito", "behaviors": [7]}`:                                                           `expected an object`,
		`{"type": "mockito", "behaviors": [{` + answer + `}]}`:                                            `function`,
		`{"type": "mockito", "behaviors": [{"function": "", ` + answer + `}]}`:                            `not empty`,
		`{"type": "mockito", "behaviors": [{"function": "f"}]}`:                                           `then`,
		`{"type": "mockito", "behaviors": [{"function": "f", "then": []}]}`:                               `at least one answer`,
		`{"type": "mockito", "behaviors": [{"function": "f", "then": [{"value": 1}]}]}`:                   `type`,
		`{"type": "mockito", "behaviors": [{"function": "f", "then": [{"type": "x", "value": 1}]}]}`:      `expected one of return, raise`,
		`{"type": "mockito", "behaviors": [{"function": "f", "then": [{"type": "return"}]}]}`:             `"value" is missing`,
		`{"type": "mockito", "behaviors": [{"function": "f", "arguments": [], ` + answer + `}]}`:          `expected an object`,
		`{"type": "mockito", "behaviors": [{"function": "f", "arguments": {"args": 1}, ` + answer + `}]}`: `expected an array`,
		`{"type": "mockito", "behaviors": [{"function": "f", "argument": {}, ` + answer + `}]}`:           `arguments`,
	} {
		if _, _, wrong := functions(t, text); !strings.Contains(wrong, says) {
			t.Errorf("%s: %q does not say %q", text, wrong, says)
		}
	}
}
