package main

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"
)

func TestPrintsWhatFailed(t *testing.T) {
	f, err := os.Open("../../report/testdata/results.json")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var out bytes.Buffer
	if err := printFailed(f, &out); err != nil {
		t.Fatal(err)
	}
	const want = `fails: score 0.16666666666666666
faults: exit: the agent ended with exit status 1; stderr ends with:
boom
mocked: not-runnable: mockingStrategy (llm): evalrun cannot mock an agent's tools
`
	if out.String() != want {
		t.Errorf("got %q, expected %q", out.String(), want)
	}
}

// Whoever reads results does not get the whole program with it.
func TestImportsOnlyWhatReadingNeeds(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	const module = "github.com/evalrun/evalrun/"
	may := map[string]bool{"schemas": true, "eval": true, "eval/evaluator": true, "eval/pyvalue": true,
		"eval/stats": true, "eval/summary": true, "internal/input": true, "internal/jsonobj": true,
		"internal/redact": true, "internal/test/reader": true}
	for _, dep := range strings.Fields(string(out)) {
		if name, ours := strings.CutPrefix(dep, module); ours && !may[name] {
			t.Errorf("the program needs %s", dep)
		}
	}
}
