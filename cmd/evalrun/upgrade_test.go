package main

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/internal/testenv"
	"github.com/evalrun/evalrun/runner"
)

// unzip unpacks an archive into a folder.
func unzip(t *testing.T, archive, dir string) {
	t.Helper()
	r, err := zip.OpenReader(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for _, f := range r.File {
		path := filepath.Join(dir, f.Name)
		if f.FileInfo().IsDir() {
			err = os.MkdirAll(path, 0o700)
		} else if err = os.MkdirAll(filepath.Dir(path), 0o700); err == nil {
			var in io.ReadCloser
			if in, err = f.Open(); err == nil {
				var data []byte
				if data, err = io.ReadAll(in); err == nil {
					err = os.WriteFile(path, data, 0o600)
				}
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// contents are those of a file, or of all files in a folder.
func contents(t *testing.T, path string) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir(path, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		all.Write(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}

// evalrunHere runs a command in this process and returns what it printed on stdout.
func evalrunHere(t *testing.T, code int, args ...string) string {
	t.Helper()
	var stdout, stderr bytes.Buffer
	if got := execute(t.Context(), args, strings.NewReader("{}"), &stdout, &stderr); got != code {
		t.Fatalf("evalrun %s ended with %d, want %d\n%s%s", strings.Join(args, " "), got, code, &stdout, &stderr)
	}
	return stdout.String()
}

// A store that an earlier version wrote is listed, shown and reported, and what it had suspended is
// gone on with to its end.
func TestStoresOfEarlierVersions(t *testing.T) {
	testenv.NeedSlow(t)
	archives, err := filepath.Glob("testdata/upgrade/*.zip")
	if err != nil || len(archives) == 0 {
		t.Fatal(archives, err)
	}
	for _, archive := range archives {
		t.Run(strings.TrimSuffix(filepath.Base(archive), ".zip"), func(t *testing.T) {
			dir := t.TempDir()
			unzip(t, archive, dir)
			t.Chdir(filepath.Join(dir, "project"))
			statuses := func() map[string]string {
				var runs []runJSON
				if err := json.Unmarshal([]byte(evalrunHere(t, exitOK, "list", "--json")), &runs); err != nil {
					t.Fatal(err)
				}
				out := map[string]string{}
				for _, r := range runs {
					out[r.RunID] = r.Status
				}
				return out
			}
			if s := statuses(); len(s) != 3 || s["mixed"] != "suspended" || s["final"] != "successful" || s["killed"] != "interrupted" {
				t.Errorf("the runs are %v", s)
			}
			for _, run := range []string{"mixed", "final"} {
				evalrunHere(t, exitOK, "show", run)
				evalrunHere(t, exitOK, "show", "--json", run)
				for _, format := range runner.Formats {
					for _, of := range []string{run, filepath.Join(".evalrun", "runs", run, "results.json")} {
						file := filepath.Join(t.TempDir(), "report")
						evalrunHere(t, exitOK, "report", "--format", format, "-o", file, of)
						if format == "inspect" {
							unzip(t, file, file+".unpacked")
							file += ".unpacked"
						}
						want := "Upgrade"
						if format == "mocks" {
							want = `"refuse": true` // no tool of these runs was called
						}
						if text := contents(t, file); !strings.Contains(text, "Done") && !strings.Contains(text, want) {
							t.Errorf("the %s report of %s is\n%s", format, of, text)
						}
					}
				}
			}
			if text := evalrunHere(t, exitOK, "triggers", "mixed"); !strings.Contains(text, "upgrade-1") {
				t.Errorf("the triggers are\n%s", text)
			}
			evalrunHere(t, exitOK, "validate", filepath.Join(".evalrun", "runs", "mixed", "results.json"))

			if text := evalrunHere(t, exitOK, "deliver", "external/upgrade-1", "--payload", "-"); !strings.Contains(text, "accepted") {
				t.Errorf("the delivery was %s", text)
			}
			evalrunHere(t, exitFaulted, "resume", "-q", "--wait", filepath.Join(".evalrun", "runs", "mixed", "results.json")) // one was faulted already
			if err := os.WriteFile("go", nil, 0o600); err != nil {
				t.Fatal(err)
			}
			evalrunHere(t, exitOK, "resume", "-q", "--wait", "--allow-unscored", "killed")
			if s := statuses(); s["mixed"] != "faulted" || s["killed"] != "successful" {
				t.Errorf("at the end the runs are %v", s)
			}
			var results struct {
				Final                bool
				EvaluationSetResults []struct {
					EvaluationID string
					Status       string
					Score        *float64
				}
			}
			if err := json.Unmarshal([]byte(evalrunHere(t, exitOK, "show", "--json", "mixed")), &results); err != nil {
				t.Fatal(err)
			}
			for _, r := range results.EvaluationSetResults {
				// What waited found its workspace, whose content it was to answer with.
				if r.EvaluationID == "waits" && (r.Status != "completed" || r.Score == nil || *r.Score != 1) {
					t.Errorf("what waited is %+v", r)
				}
			}
			if !results.Final || len(results.EvaluationSetResults) != 3 {
				t.Errorf("the results are %+v", results)
			}
			evalrunHere(t, exitOK, "rm", "mixed", "final", "killed")
		})
	}
}
