package web_test

import (
	"encoding/json"
	"fmt"
	"html"
	"mime"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/internal/testenv"
	"github.com/evalrun/evalrun/runner"
	"github.com/evalrun/evalrun/schemas"
)

var downloadLink = regexp.MustCompile(`<a href="([^"]*)" download>`)

// downloads are the files that a page offers.
func (s *site) downloads(path string) (out []string) {
	for _, m := range downloadLink.FindAllStringSubmatch(s.page(path), -1) {
		out = append(out, html.UnescapeString(m[1]))
	}
	return out
}

// W8: what a page shows can be had as a file: a run in each format, a rollout with its values and its
// trajectory, and a comparison. A file is an attachment in a sandbox, whatever is in it.
func TestWhatIsShownCanBeDownloaded(t *testing.T) {
	testenv.NeedSlow(t)
	t.Parallel()
	s := newSite(t, 2, "account", "wrong")
	one := s.rollout("wrong")
	before := s.another(filepath.Join(filepath.Dir(s.store.Dir()), "set.json"))
	run := s.downloads("/runs/" + s.runID)
	rollout := s.downloads(s.path(one))
	comparison := s.downloads("/compare?a=" + before + "&b=" + s.runID)
	if len(run) != 8 || len(rollout) != 3 || len(comparison) != 3 {
		t.Errorf("%d files of the run, %d of the rollout, %d of the comparison", len(run), len(rollout), len(comparison))
	}
	for _, u := range append(append(run, rollout...), comparison...) {
		w := s.get(u)
		kind, values, err := mime.ParseMediaType(w.Header().Get("Content-Disposition"))
		if w.Code != http.StatusOK || err != nil || kind != "attachment" || values["filename"] == "" || !strings.Contains(w.Header().Get("Content-Security-Policy"), "sandbox") || w.Body.Len() == 0 {
			t.Errorf("%s: %d %v, %d bytes", u, w.Code, w.Header(), w.Body.Len())
		}
	}
	var results schemas.Results
	if err := json.Unmarshal(s.get("/runs/"+s.runID+"/download/json").Body.Bytes(), &results); err != nil || len(results.EvaluationSetResults) != len(s.all) {
		t.Errorf("%v, %d rollouts", err, len(results.EvaluationSetResults))
	}
	var detail schemas.Rollout
	if err := json.Unmarshal(s.get(s.path(one)+"/download/rollout").Body.Bytes(), &detail); err != nil || detail.RolloutID != one.RolloutID || *detail.Score != *one.Score {
		t.Errorf("%v, %+v", err, detail)
	}
	var output map[string]string
	if err := json.Unmarshal(s.get(s.path(one)+"/download/output").Body.Bytes(), &output); err != nil || output["category"] != "billing" {
		t.Errorf("%v, %v", err, output)
	}
	for path, want := range map[string]string{"/runs/" + s.runID + "/download/pdf": "there are json, html, csv", s.path(one) + "/download/nothing": "nothing at this path", s.path(one) + "/download/expected": "has no expected"} {
		if w := s.get(path); w.Code != http.StatusNotFound || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
}

// another runs a set once more.
func (s *site) another(set string) string {
	s.Helper()
	loaded, err := runner.Load([]string{set}, runner.LoadOptions{})
	if err != nil {
		s.Fatal(err)
	}
	created, err := s.store.Create(s.Context(), loaded, runner.CreateOptions{})
	if err != nil {
		s.Fatal(err)
	}
	if _, err := s.store.Run(s.Context(), created.RunID, runner.RunOptions{}); err != nil {
		s.Fatal(err)
	}
	return created.RunID
}

// W8: the command that repeats an evaluation says in which folder of the checkout it is given, at which
// commit, and which variables it needs; never their values, nor where the folder is on this machine.
func TestTheCommandThatRepeatsARolloutHasItsFolderAndVariables(t *testing.T) {
	for name, c := range map[string]struct{ checkout, at, want string }{
		"a folder of a checkout":    {".git", "evals", "From the root of the checkout, of which it was started in evals . It was given the variables DESK_KEY , DESK_URL ; their values are not kept.\ncd evals evalrun run set.json --eval-id 'one two'"},
		"the root of a checkout":    {".git", ".", "From the root of the checkout. It was given the variables DESK_KEY , DESK_URL ; their values are not kept.\nevalrun run evals/set.json --eval-id 'one two'"},
		"a folder without checkout": {"", "evals", "From the folder that has the store; it was started in evals . It was given the variables DESK_KEY , DESK_URL ; their values are not kept.\ncd evals evalrun run set.json --eval-id 'one two'"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("DESK_KEY", "a secret value")
			t.Setenv("DESK_URL", "http://127.0.0.1:1")
			dir := t.TempDir()
			if err := os.MkdirAll(filepath.Join(dir, "evals", c.checkout), 0o700); err != nil {
				t.Fatal(err)
			}
			if c.checkout != "" {
				if err := os.Rename(filepath.Join(dir, "evals", c.checkout), filepath.Join(dir, c.checkout)); err != nil {
					t.Fatal(err)
				}
			}
			set := `{"version": "1.0", "id": "s", "name": "S", "agent": {"type": "function", "command": ["sh", "-c", "echo {}"], "env": {"KEY": "${DESK_KEY}", "URL": "${DESK_URL}"}},
 "evaluators": [], "evaluations": [{"id": "one two", "name": "One", "inputs": {}, "evaluationCriterias": {}}]}`
			if err := os.WriteFile(filepath.Join(dir, "evals", "set.json"), []byte(set), 0o600); err != nil {
				t.Fatal(err)
			}
			t.Chdir(filepath.Join(dir, c.at))
			path, err := filepath.Rel(filepath.Join(dir, c.at), filepath.Join(dir, "evals", "set.json"))
			if err != nil {
				t.Fatal(err)
			}
			s := newSiteMade(t, dir, path, runner.LoadOptions{}, runner.CreateOptions{CommandLine: []string{"evalrun", "run", path}})
			text := strings.Join(strings.Fields(html.UnescapeString(tagsOf.ReplaceAllString(s.page(s.path(s.all[0])), " "))), " ")
			if want := strings.Join(strings.Fields(c.want), " "); !strings.Contains(text, want) || strings.Contains(text, "a secret value") || strings.Contains(text, dir) {
				_, after, _ := strings.Cut(text, "Run it again")
				t.Errorf("%q, want %q", after, want)
			}
			if run := s.page("/runs/" + s.runID); !strings.Contains(run, ">Run it again<") || !strings.Contains(run, fmt.Sprintf("evalrun run %s", path)) {
				t.Error("the page of the run does not say how it is run again")
			}
		})
	}
}
