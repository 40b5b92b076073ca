package modelagent

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/evalrun/evalrun/internal/input"
)

func TestFill(t *testing.T) {
	inputs := json.RawMessage(`{"q": "see {{a}}", "a": "secret", "n": 3, "list": [1, {"x": null}], "o": {"p": {"q": "deep"}}}`)
	for template, c := range map[string]struct{ want, missing string }{
		"no place":                {"no place", ""},
		"{{q}}":                   {"see {{a}}", ""}, // a value is never a template
		"{{q}}{{a}}":              {"see {{a}}secret", ""},
		"{{ n }} {{o.p.q}}":       {"3 deep", ""},
		"{{list}} {{list.1.x}}":   {`[1, {"x": null}] null`, ""},
		"{{list.2}}":              {"{{list.2}}", "list.2"},
		"{{o.q}} {{gone}}":        {"{{o.q}} {{gone}}", "o.q"},
		"{{ }} {{1x}} { {q} } {{": {"{{ }} {{1x}} { {q} } {{", ""},
	} {
		filled, missing := fill(template, inputs)
		if filled != c.want || missing != c.missing {
			t.Errorf("%s: got %q, %q", template, filled, missing)
		}
	}
}

func names(t *testing.T, text string) (out []string) {
	t.Helper()
	n, err := input.Parse("set.json", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range expand(n) {
		r := &input.Reader{}
		f := r.Object(one)
		e := parse(r, f)
		f.Get("type")
		f.Done()
		if err := r.Problems.Err(true); err != nil {
			out = append(out, err.Error())
			continue
		}
		out = append(out, e.Name+" | "+e.Model.Name+" | "+e.Settings.(*Settings).Prompt)
	}
	return out
}

func TestModelsAndPromptsAreAMatrix(t *testing.T) {
	for text, want := range map[string][]string{
		`{"type": "model", "model": "openai/a"}`: {"openai/a | a | "},
		`{"type": "model", "models": ["openai/a", "anthropic/b"], "prompts": ["x", "y"]}`: {
			"openai/a prompt 1 | a | x", "openai/a prompt 2 | a | y", "anthropic/b prompt 1 | b | x", "anthropic/b prompt 2 | b | y"},
		`{"type": "model", "name": "mine", "models": ["openai/a", {"url": "http://localhost/v1", "name": "b"}], "prompt": "x"}`: {
			"mine openai/a | a | x", "mine b | b | x"},
		`{"type": "model", "name": "mine", "model": "openai/a", "prompts": ["x", "y"]}`: {"mine prompt 1 | a | x", "mine prompt 2 | a | y"},
		`{"type": "model", "model": "openai/a", "models": ["openai/b"]}`: {
			"set.json:1:50: models: expected model; a list stands only in an eval set's own agent or agents"},
	} {
		if diff := cmp.Diff(want, names(t, text)); diff != "" {
			t.Errorf("%s: %s", text, diff)
		}
	}
}

func TestAPromptOfAFile(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "prompt.md"), []byte("Say {{x}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"file:prompt.md": "Say {{x}}\n", "file:gone.md": "gone.md"} {
		n, err := input.Parse(filepath.Join(dir, "set.json"), []byte(`{"model": "openai/a", "prompt": "`+name+`"}`))
		if err != nil {
			t.Fatal(err)
		}
		r := &input.Reader{}
		got := parse(r, r.Object(n)).Settings.(*Settings).Prompt
		if err := r.Problems.Err(false); err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, want) {
			t.Errorf("%s: got %q", name, got)
		}
	}
}

func TestEntriesAreStoredAsTheyAre(t *testing.T) {
	e := entryOf(t, `{"model": "anthropic/claude", "name": "n", "system": "s", "messages": [{"content": "{{x}}"}], "output": {"schema": {"type": "object"}},
		"temperature": 0, "maxTokens": 5, "reasoning": 1024, "timeout": "3m"}`)
	data, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	var settings Settings
	if err := json.Unmarshal(data, &settings); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(e.Settings, any(&settings)); diff != "" {
		t.Error(diff)
	}
	if got := lacks(e, json.RawMessage(`{"y": 1}`)); got != "x" {
		t.Errorf("lacks %q", got)
	}
}
