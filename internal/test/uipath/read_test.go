package uipath

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// UiPath's model reads the output of `report --format uipath`, whatever became of the rollouts,
// and nothing is left out.
func TestReportIsReadable(t *testing.T) {
	python(t)
	p := newProject(t)
	p.write(t, "evaluations/evaluators/judge.json", object{{"version", "1.0"}, {"id", "judge"}, {"name", "Judge"}, {"evaluatorTypeId", "uipath-llm-judge-output-semantic-similarity"},
		{"evaluatorConfig", object{{"name", "Judge"}, {"model", "gpt-4o"}, {"prompt", "{{ActualOutput}}"}}}})
	p.write(t, "evaluations/evaluators/custom.json", object{{"version", "1.0"}, {"id", "custom"}, {"evaluatorSchema", "file://op.py:Op"}, {"evaluatorConfig", object{{"name", "Op"}}}})
	p.write(t, "evaluations/evaluators/broken.json", object{{"id", "broken"}, {"type", "command"}, {"command", list{"false"}}})
	criteria := object{{"exact", object{{"expectedOutput", object{{"a", 1}}}}}, {"lines-whole", object{{"expectedOutput", "{'a': 1.0}"}}},
		{"legacy-similar", object{{"expectedOutput", object{{"a", 1}}}, {"expectedAgentBehavior", ""}}},
		{"judge", object{{"expectedOutput", object{{"a", 1}}}}}, {"custom", object{{"x", 1}}}, {"broken", object{}}}
	var items list
	add := func(name, output string, more ...member) {
		items = append(items, object{{"id", name}, {"name", name}, {"inputs", append(object{{"output", raw(output)}}, more...)}, {"evaluationCriterias", criteria}})
	}
	add("object", `{"a":1}`, member{"spans", list{object{{"name", "no status"}}, raw(`{"name":"t","status":{"status_code":"ERROR"},"attributes":{"tool.name":"t"},"events":[{"name":"e"}]}`)}})
	add("list", `[1,2]`)
	add("number", `7`)
	add("text", `"seven"`)
	add("crash", `{}`, member{"crash", true})
	add("job", `{"__interrupt__":[{"id":"0123456789abcdef0123456789abcdef","value":{"name":"process","process_folder_path":"Shared","input_arguments":{"x":1}}}]}`)
	add("question", `{"__interrupt__":[{"id":"q","value":"how many?"},{"id":"r","value":{"anything":[1]}}]}`)
	add("timer", `{"__interrupt__":[{"id":"t","value":{"resume_time":"2999-01-01T00:00:00.5Z"}}]}`)
	p.write(t, "evaluations/eval-sets/set.json", object{{"version", "1.0"}, {"id", "set"}, {"name", "set"}, {"evaluatorRefs", list{"exact", "lines-whole", "legacy-similar", "judge", "custom", "broken"}},
		{"evaluations", items}})
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p.write(t, "agent.json", object{{"type", "function"}, {"command", list{self, "agent"}}})
	evalrun(t, p.dir, []int{75}, "run", "evaluations/eval-sets/set.json", "--agent", "agent.json", "-o", "results.json", "--quiet")

	var files []string
	for _, arguments := range [][]string{{"--format", "uipath"}, {"--format", "uipath", "--verbose"}} {
		file := filepath.Join(p.dir, strings.Join(arguments, ""))
		if err := os.WriteFile(file, evalrun(t, p.dir, []int{0}, append([]string{"report", "results.json"}, arguments...)...), 0o600); err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	var read []struct {
		Items []struct {
			Name    string
			Status  *string
			Results map[string][]any
		}
	}
	reference(t, &read, append([]string{"read"}, files...)...)
	for i, verbose := range []bool{false, true} {
		for _, item := range read[i].Items {
			status := ""
			if item.Status != nil {
				status = *item.Status
			}
			switch item.Name {
			case "crash":
				wantItem(t, item.Name, status, "faulted", len(item.Results), 0)
			case "job", "question", "timer":
				wantItem(t, item.Name, status, "suspended", len(item.Results), 0)
			default:
				wantItem(t, item.Name, status, map[bool]string{true: "successful"}[verbose], len(item.Results), len(criteria))
				want := map[string]any{"judge": "Not run: ", "custom": "Not run: ", "broken": "Exception thrown by evaluator: "}
				for id, prefix := range want {
					if r := item.Results[id]; len(r) != 2 || !reflect.DeepEqual(r[0], 0.0) || !strings.HasPrefix(text(r[1]), `"`+prefix.(string)) {
						t.Errorf("%s: %s: %v", item.Name, id, r)
					}
				}
			}
		}
		if len(read[i].Items) != len(items) {
			t.Errorf("%d items, want %d", len(read[i].Items), len(items))
		}
	}
}

func wantItem(t *testing.T, name, status, wantStatus string, results, wantResults int) {
	t.Helper()
	if status != wantStatus || results < wantResults || wantResults == 0 && results > 0 {
		t.Errorf("%s: status %q with %d results, want %q with %d", name, status, results, wantStatus, wantResults)
	}
}
